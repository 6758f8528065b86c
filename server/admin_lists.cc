// The part of AdminService that lists: pages of rows, and the blocks of a prefix.
#include <optional>
#include <vector>

#include "server/admin_service.h"
#include "server/page.h"
#include "server/reactors.h"
#include "server/served_fields.h"
#include "server/translate.h"
#include "server/translate_lists.h"

namespace pagoda::server {

grpc::ServerUnaryReactor* AdminService::ListSessions(grpc::CallbackServerContext* context,
                                                     const v1::ListSessionsRequest* request,
                                                     v1::ListSessionsResponse* response) {
  if (absl::Status status = CheckServed(*request); !status.ok()) return Answer(context, status);
  const absl::StatusOr<PageStart> start = ParsePageToken(request->page_token());
  if (!start.ok()) return Answer(context, start.status());
  const size_t size = PageSize(request->page_size());
  // One row more than the page has says where the next one begins.
  std::vector<SessionRow> rows = parts_.manager->Sessions(SessionId(start->major), size + 1);
  if (rows.size() > size) {
    response->set_next_page_token(PageToken({.major = rows.back().session.value()}));
    rows.pop_back();
  }
  for (const SessionRow& row : rows) SessionRowToProto(row, response->add_sessions());
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::ListSequences(grpc::CallbackServerContext* context,
                                                      const v1::ListSequencesRequest* request,
                                                      v1::ListSequencesResponse* response) {
  if (absl::Status status = CheckServed(*request); !status.ok()) return Answer(context, status);
  const absl::StatusOr<PageStart> start = ParsePageToken(request->page_token());
  if (!start.ok()) return Answer(context, start.status());
  std::optional<SessionId> only;
  if (request->session_id() != 0) only = SessionId(request->session_id());
  const size_t size = PageSize(request->page_size());
  std::vector<SequenceRow> rows = parts_.manager->Sequences(
      only, {SessionId(start->major), SequenceId(start->minor)}, size + 1);
  if (rows.size() > size) {
    response->set_next_page_token(
        PageToken({.major = rows.back().session.value(), .minor = rows.back().sequence.value()}));
    rows.pop_back();
  }
  for (const SequenceRow& row : rows) SequenceRowToProto(row, response->add_sequences());
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::InspectPrefix(grpc::CallbackServerContext* context,
                                                      const v1::InspectPrefixRequest* request,
                                                      v1::InspectPrefixResponse* response) {
  if (absl::Status status = CheckServed(*request); !status.ok()) return Answer(context, status);
  const std::vector<TokenId> tokens(request->tokens().begin(), request->tokens().end());
  const absl::StatusOr<InspectedPrefix> prefix =
      parts_.manager->InspectPrefix(NamespaceFromProto(request->namespace_()), tokens);
  if (!prefix.ok()) return Answer(context, prefix.status());
  InspectedPrefixToProto(*prefix, response);
  return Answer(context, absl::OkStatus());
}

}  // namespace pagoda::server
