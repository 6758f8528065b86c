// The method of CacheService that reads a sequence's KV.
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/calls/reactors.h"
#include "server/rpc/cache_service.h"
#include "server/rpc/materialize_stream.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
absl::StatusOr<CacheService::Readable> CacheService::CheckMaterialize(
    const Identity& caller, const v1::MaterializeRequest& request) {
  absl::StatusOr<CachePtr> cache = CheckPrefixCall(caller, request.session());
  if (!cache.ok()) return cache.status();
  absl::StatusOr<LayerReader> reader = LayerReader::Open(*(*cache)->pools, request.layer());
  if (!reader.ok()) return reader.status();
  const uint64_t token_bytes = reader->form().token_bytes();
  if (token_bytes > options_.max_message_bytes) {
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("one token of layer ", request.layer(), " has ", token_bytes,
                     " bytes of K and V; a message has at most ", options_.max_message_bytes));
  }
  absl::StatusOr<StreamSlots::Slot> slot = admission()->TakeStream(caller);
  if (!slot.ok()) return slot.status();
  return Readable{*std::move(cache), *std::move(reader), *std::move(slot)};
}

grpc::ServerWriteReactor<v1::MaterializeResponse>* CacheService::Materialize(
    grpc::CallbackServerContext*, const Identity& caller, const v1::MaterializeRequest& request) {
  absl::StatusOr<Readable> readable = CheckMaterialize(caller, request);
  if (!readable.ok()) {
    return new RefusedStream<grpc::ServerWriteReactor<v1::MaterializeResponse>>(
        ToGrpcStatus(readable.status()));
  }
  return MaterializeStream::Start(
      {.cache = std::move(readable->cache),
       .session = SessionFromProto(request.session()),
       .sequence = SequenceId(request.sequence_id()),
       .token_begin = request.token_begin(),
       .token_end = request.token_end(),
       .needs_mapping = !caller.is_operator(),
       .check_caller = [admission = admission(),
                        caller] { return admission->CheckStillKnown(caller); }},
      std::move(readable->reader), std::move(readable->slot));
}

}  // namespace pagoda::server
