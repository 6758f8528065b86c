// What operations and results on the wire share, in the client's direction.
#ifndef PAGODA_CLIENTS_CPP_TRANSLATE_H_
#define PAGODA_CLIENTS_CPP_TRANSLATE_H_

#include "manager/cache_client.h"
#include "pagoda/v1/cache.pb.h"
#include "pools/types.h"

namespace pagoda {

// 0 on the wire is full attention.
uint32_t WindowToProto(WindowSize window);
WindowSize WindowFromProto(uint32_t window_size);

CacheInfo CacheInfoFromProto(const v1::CacheInfo& proto);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_TRANSLATE_H_
