// Counts with their nouns, for messages.
#ifndef PAGODA_BASE_COUNTED_H_
#define PAGODA_BASE_COUNTED_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda {

// The plural of a noun that has a regular one: "blocks", "copies", "batches".
std::string Plural(std::string_view noun);

// "1 block", "2 blocks". `noun` is singular.
std::string Counted(uint64_t count, std::string_view noun);

}  // namespace pagoda

#endif  // PAGODA_BASE_COUNTED_H_
