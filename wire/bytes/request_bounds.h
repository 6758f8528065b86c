// Bounds on the parts of a request, checked on its bytes. An empty part takes two bytes on the wire
// and up to a hundred in memory, so a request of the largest size could hold its thread for half a
// second before a handler counts its parts.
#ifndef PAGODA_WIRE_BYTES_REQUEST_BOUNDS_H_
#define PAGODA_WIRE_BYTES_REQUEST_BOUNDS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace pagoda {

// The messages, texts and byte strings inside of one request. A prompt of 4 million tokens has so
// many keys.
inline constexpr size_t kMaxRequestParts = size_t{1} << 18;

// The numbers of a request that take fewer bytes on the wire than in memory (varints). A list of
// the longest prompt's tokens has so many elements.
inline constexpr size_t kMaxRequestVarints = size_t{1} << 22;

// Fields that this version does not know. CheckServed refuses each, after the parser has kept it.
inline constexpr size_t kMaxUnknownFields = size_t{64} << 10;

// Requests of fewer bytes are within all bounds, or their handlers refuse them in time.
inline constexpr size_t kLeastCheckedBytes = size_t{64} << 10;

// Makes no objects, and reads no further than the first excess. Bytes that are not a message of
// this type pass: the parser refuses them. Errors: BATCH_TOO_LARGE (operations); INVALID_ARGUMENT
// (retention ranges in one list, more parts than kMaxRequestParts, or more numbers than
// kMaxRequestVarints);
// FIELD_NOT_SERVED (more than kMaxUnknownFields unknown fields, or a group).
absl::Status CheckRequestBounds(const google::protobuf::Descriptor& type, absl::string_view bytes);
absl::Status CheckRequestBounds(const google::protobuf::Descriptor& type,
                                google::protobuf::io::ZeroCopyInputStream* bytes);

}  // namespace pagoda

#endif  // PAGODA_WIRE_BYTES_REQUEST_BOUNDS_H_
