// CacheService.Materialize: the bytes of a sequence's KV, over the wire.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/cpp/map_pools.h"
#include "grpcpp/grpcpp.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/calls/rpc_metrics.h"
#include "server/rpc/cache_service.h"
#include "server/rpc/materialize_stream.h"
#include "tests/server/held_copies.h"
#include "tests/server/test_daemon.h"
#include "wire/errors.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

struct Answer {
  v1::MaterializedLayer layer;
  std::string keys, values;
  int messages = 0;
  grpc::Status status;

  std::string reason() const { return status.ok() ? "" : InfoOf(status).reason(); }
  template <class T>
  T At(const std::string& rows, size_t index) const {
    T value;
    std::memcpy(&value, rows.data() + index * sizeof(T), sizeof(T));
    return value;
  }
};

v1::MaterializeRequest RequestOf(const v1::SessionRef& session, uint64_t sequence, uint32_t layer,
                                 uint32_t begin = 0, uint32_t end = 0) {
  v1::MaterializeRequest request;
  *request.mutable_session() = session;
  request.set_sequence_id(sequence);
  request.set_layer(layer);
  request.set_token_begin(begin);
  request.set_token_end(end);
  return request;
}

// `after_first` is called when the first message has arrived.
Answer Read(v1::CacheService::Stub& stub, const v1::MaterializeRequest& request,
            const std::function<void()>& after_first = nullptr) {
  Answer answer;
  const auto context = NewContext();
  const auto reader = stub.Materialize(context.get(), request);
  for (v1::MaterializeResponse response; reader->Read(&response);) {
    EXPECT_EQ(response.has_layer(), answer.messages == 0);
    if (response.has_layer()) answer.layer = response.layer();
    EXPECT_LE(response.keys().size() + response.values().size(), MaterializeStream::kMessageBytes);
    answer.keys += response.keys();
    answer.values += response.values();
    if (++answer.messages == 1 && after_first) after_first();
  }
  answer.status = reader->Finish();
  return answer;
}

// What the tests write: an element's place in the model, exact in float32.
float ElementAt(uint32_t layer, uint32_t part, uint32_t head, uint32_t token, uint32_t i) {
  return static_cast<float>((((layer * 2 + part) * 2 + head) * 256 + token) * 16 + i % 16);
}

class MaterializeTest : public DaemonTest {
 protected:
  MaterializeTest() : MaterializeTest(TestConfig()) {}
  explicit MaterializeTest(const Config& config) : DaemonTest(config), opened_(Open()) {
    auto pools =
        MapPools(opened_.map_socket(), session(), MemoryAccess::kReadWrite, absl::Seconds(30));
    EXPECT_TRUE(pools.ok()) << pools.status();
    pools_ = *std::move(pools);
  }
  const v1::SessionRef& session() const { return opened_.session(); }

  // Opens a sequence, writes the elements of all its tokens in every layer, and commits them.
  void Compute(uint64_t sequence, uint32_t tokens, uint32_t first_id = 0) {
    std::vector<uint32_t> ids = TokensTo(tokens);
    for (uint32_t& id : ids) id += first_id;
    const v1::OperationResult added = Run(session(), AddOp(sequence, ids));
    ASSERT_FALSE(added.has_error()) << added.error().message();
    for (const v1::BlockTable& table : added.add_sequence().tables()) {
      const std::vector<BlockHandle> blocks = HandlesOf(table.blocks());
      for (uint32_t token = 0; token < tokens; ++token) {
        const size_t entry = token / kTestTokensPerBlock;
        if (entry >= blocks.size()) break;
        WriteToken(table.window_size(), blocks[entry].slot.value(), token);
      }
    }
    const v1::OperationResult committed = Run(session(), CommitOp(sequence, tokens));
    ASSERT_FALSE(committed.has_error()) << committed.error().message();
  }

  void WriteToken(uint32_t window, uint32_t slot, uint32_t token) {
    for (const auto& pool : pools_) {
      const PoolMapping& mapping = pool->mapping();
      const PoolLayout& layout = mapping.layout;
      if (WindowToProto(mapping.window) != window || mapping.tier != kPrimaryTier) continue;
      if (layout.content != PoolContent::kElements || layout.dtype != DType::kFloat32) continue;
      std::byte* const bytes = pool->slot(SlotIndex{slot}).data();
      for (size_t l = 0; l < layout.layers.size(); ++l) {
        for (uint32_t part = 0; part < layout.kv_factor; ++part) {
          for (uint32_t head = 0; head < layout.num_kv_heads; ++head) {
            for (uint32_t i = 0; i < layout.head_dim; ++i) {
              const float value = ElementAt(layout.layers[l], part, head, token, i);
              std::memcpy(bytes + l * layout.layer_stride_bytes() +
                              part * layout.kv_stride_bytes() + head * layout.head_stride_bytes() +
                              token % kTestTokensPerBlock * layout.token_stride_bytes() +
                              i * sizeof(value),
                          &value, sizeof(value));
            }
          }
        }
      }
    }
  }

  // Whether the rows are those that Compute wrote for these tokens.
  static void ExpectRows(const Answer& answer, uint32_t layer, uint32_t begin, uint32_t end) {
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    const v1::MaterializedLayer& told = answer.layer;
    EXPECT_EQ(told.dtype(), v1::DTYPE_FLOAT32);
    EXPECT_EQ(told.token_begin(), begin);
    ASSERT_EQ(told.token_end(), end);
    const size_t row = size_t{told.num_kv_heads()} * told.head_dim();
    for (const uint32_t part : {0, 1}) {
      const std::string& rows = part == 0 ? answer.keys : answer.values;
      ASSERT_EQ(rows.size(), (end - begin) * row * sizeof(float));
      for (size_t index = 0; index < (end - begin) * row; ++index) {
        const auto head = static_cast<uint32_t>(index % row / told.head_dim());
        const auto i = static_cast<uint32_t>(index % told.head_dim());
        const auto token = static_cast<uint32_t>(begin + index / row);
        const float expected = ElementAt(layer, part, head, token, i);
        if (answer.At<float>(rows, index) == expected) continue;
        FAIL() << "part " << part << " token " << token << " head " << head << " element " << i
               << ": " << answer.At<float>(rows, index) << ", not " << expected;
      }
    }
  }

  const v1::OpenSessionResponse opened_;
  std::vector<std::unique_ptr<MappedPool>> pools_;
};

TEST_F(MaterializeTest, SendsTheRowsOfALayer) {
  Compute(1, 11);
  for (const uint32_t layer : {0, 1}) {
    const Answer answer = Read(cache(), RequestOf(session(), 1, layer));
    EXPECT_EQ(answer.layer.num_kv_heads(), 2u);
    EXPECT_EQ(answer.layer.head_dim(), 8u);
    ExpectRows(answer, layer, 0, 11);
  }
  ExpectRows(Read(cache(), RequestOf(session(), 1, 1, 3, 9)), 1, 3, 9);
  ExpectRows(Read(cache(), RequestOf(session(), 1, 1, 8, 0)), 1, 8, 11);
  ExpectRows(Read(cache(), RequestOf(session(), 1, 1, 5, 5)), 1, 5, 5);
  ExpectRows(Read(cache(), RequestOf(session(), 1, 1, 11, 0)), 1, 11, 11);
}

// Tokens without complete KV are left out.
TEST_F(MaterializeTest, SendsComputedTokensOnly) {
  Run(session(), AddOp(1, TokensTo(9)));
  ExpectRows(Read(cache(), RequestOf(session(), 1, 0)), 0, 0, 0);
  Run(session(), CommitOp(1, 6));
  EXPECT_EQ(Read(cache(), RequestOf(session(), 1, 0)).layer.token_end(), 6u);
  EXPECT_EQ(Read(cache(), RequestOf(session(), 1, 0, 0, 7)).reason(), "INVALID_ARGUMENT");
}

TEST_F(MaterializeTest, ErrorsNameTheirReasons) {
  Compute(1, 8);
  const auto reason = [&](const v1::MaterializeRequest& request) {
    return Read(cache(), request).reason();
  };
  EXPECT_EQ(reason(RequestOf(session(), 1, 0, 0, 9)), "INVALID_ARGUMENT");
  EXPECT_EQ(reason(RequestOf(session(), 1, 0, 9, 0)), "INVALID_ARGUMENT");
  EXPECT_EQ(reason(RequestOf(session(), 1, 0, 4, 3)), "INVALID_ARGUMENT");
  EXPECT_EQ(reason(RequestOf(session(), 1, 0, ~0u, ~0u)), "INVALID_ARGUMENT");
  EXPECT_EQ(reason(RequestOf(session(), 1, 2)), "INVALID_ARGUMENT");
  EXPECT_EQ(reason(RequestOf(session(), 2, 0)), "UNKNOWN_SEQUENCE");
  EXPECT_EQ(reason(RequestOf(OpenRef(), 1, 0)), "UNKNOWN_SEQUENCE") << "another session's";
  v1::SessionRef forged = session();
  forged.set_token(forged.token() + 1);
  EXPECT_NE(reason(RequestOf(forged, 1, 0)), "");
  EXPECT_EQ(reason(RequestOf({}, 1, 0)), "UNKNOWN_SESSION");
}

Config LongRows() {
  Config config = TestConfig();
  config.cache.layers = {{.count = 1, .num_kv_heads = 2, .head_dim = 16'384}};
  return config;
}

class LongMaterializeTest : public MaterializeTest {
 protected:
  LongMaterializeTest() : MaterializeTest(LongRows()) {}
};

// A token has 256 KiB of K and V.
TEST_F(LongMaterializeTest, ALongAnswerComesInMessages) {
  Compute(1, 90);
  const Answer answer = Read(cache(), RequestOf(session(), 1, 0, 1, 90));
  EXPECT_EQ(answer.messages, 23);
  ExpectRows(answer, 0, 1, 90);
}

TEST_F(LongMaterializeTest, ATruncatedOrFreedSequenceEndsTheCall) {
  Compute(1, 100);
  v1::Operation truncate;
  truncate.mutable_truncate_sequence()->set_sequence_id(1);
  truncate.mutable_truncate_sequence()->set_token_count(98);
  Answer cut = Read(cache(), RequestOf(session(), 1, 0), [&] { Run(session(), truncate); });
  EXPECT_EQ(cut.reason(), "INVALID_ARGUMENT") << cut.messages;
  EXPECT_LT(cut.messages, 25);
  cut = Read(cache(), RequestOf(session(), 1, 0), [&] { Run(session(), FreeSequenceOp(1)); });
  EXPECT_EQ(cut.reason(), "UNKNOWN_SEQUENCE") << cut.messages;
  // Tokens that are not computed are not KV.
  Compute(2, 100, 500);
  truncate.mutable_truncate_sequence()->set_sequence_id(2);
  truncate.mutable_truncate_sequence()->set_token_count(100);
  ExpectRows(Read(cache(), RequestOf(session(), 2, 0), [&] { Run(session(), truncate); }), 0, 0,
             100);
}

Config TinyMessages() {
  Config config = LongRows();
  config.server.max_message_bytes = 200 << 10;
  return config;
}

class TinyMessagesTest : public MaterializeTest {
 protected:
  TinyMessagesTest() : MaterializeTest(TinyMessages()) {}
};

TEST_F(TinyMessagesTest, ATokenThatExceedsAMessageIsRefusedByName) {
  Compute(1, 4);
  const Answer answer = Read(cache(), RequestOf(session(), 1, 0));
  EXPECT_EQ(answer.reason(), "INVALID_ARGUMENT");
  EXPECT_EQ(answer.status.error_message(),
            "one token of layer 0 has 262144 bytes of K and V; a message has at most 204800");
}

Config Windows() {
  Config config = TestConfig();
  config.cache.layers = {{.count = 1, .num_kv_heads = 2, .head_dim = 8},
                         {.count = 1, .window = 8, .num_kv_heads = 2, .head_dim = 8},
                         {.count = 1, .kind = KvKind::kOpaque, .bytes_per_block = 64}};
  return config;
}

class WindowMaterializeTest : public MaterializeTest {
 protected:
  WindowMaterializeTest() : MaterializeTest(Windows()) {}
};

TEST_F(WindowMaterializeTest, AWindowHasWhatItStillHolds) {
  Compute(1, 30);
  ExpectRows(Read(cache(), RequestOf(session(), 1, 0)), 0, 0, 30);
  const Answer passed = Read(cache(), RequestOf(session(), 1, 1));
  EXPECT_EQ(passed.reason(), "WINDOW_PASSED");
  // The window of 8 tokens needs the tokens from 23 on, which begin in the block of token 20.
  EXPECT_EQ(InfoOf(passed.status).metadata().at("first_token"), "20");
  EXPECT_EQ(Read(cache(), RequestOf(session(), 1, 1, 19)).reason(), "WINDOW_PASSED");
  ExpectRows(Read(cache(), RequestOf(session(), 1, 1, 20)), 1, 20, 30);
  EXPECT_EQ(Read(cache(), RequestOf(session(), 1, 2)).reason(), "INVALID_ARGUMENT") << "opaque";
}

Config Float8() {
  Config config = TestConfig();
  config.cache.kv_dtype = DType::kFloat8E4M3;
  config.cache.layers = {{.count = 1, .num_kv_heads = 2, .head_dim = 8},
                         {.count = 1, .num_kv_heads = 1, .head_dim = 8, .kind = KvKind::kKeyOnly}};
  return config;
}

class Float8MaterializeTest : public MaterializeTest {
 protected:
  Float8MaterializeTest() : MaterializeTest(Float8()) {}
};

TEST_F(Float8MaterializeTest, Float8IsMultipliedByItsScales) {
  Compute(1, 6);
  v1::Operation describe;
  describe.mutable_describe_sequence()->set_sequence_id(1);
  const std::vector<BlockHandle> blocks =
      HandlesOf(Run(session(), describe).describe_sequence().tables(0).blocks());
  for (const auto& pool : pools_) {
    for (int block = 0; block < 2; ++block) {
      const absl::Span<std::byte> bytes = pool->slot(blocks[block].slot);
      if (pool->mapping().layout.content == PoolContent::kElements) {
        // 1 in E4M3; the second block has 2.
        std::fill(bytes.begin(), bytes.end(), block == 0 ? std::byte{0x38} : std::byte{0x40});
        continue;
      }
      for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
        const float scale = static_cast<float>(block * 10 + static_cast<int>(i)) + 0.5f;
        std::memcpy(bytes.data() + i * sizeof(scale), &scale, sizeof(scale));
      }
    }
  }
  const Answer both = Read(cache(), RequestOf(session(), 1, 0));
  ASSERT_TRUE(both.status.ok()) << both.status.error_message();
  EXPECT_EQ(both.layer.dtype(), v1::DTYPE_FLOAT32);
  ASSERT_EQ(both.keys.size(), 6u * 2 * 8 * 4);
  ASSERT_EQ(both.values.size(), both.keys.size());
  // [token][head][element]: head 1 of token 3, and of token 4, which is in the second block.
  EXPECT_EQ(both.At<float>(both.keys, (3 * 2 + 1) * 8), 1.5f);
  EXPECT_EQ(both.At<float>(both.values, (3 * 2 + 1) * 8 + 7), 3.5f);
  EXPECT_EQ(both.At<float>(both.keys, (4 * 2 + 1) * 8), 23.0f);
  EXPECT_EQ(both.At<float>(both.values, (4 * 2 + 0) * 8), 25.0f);
  const Answer latents = Read(cache(), RequestOf(session(), 1, 1));
  ASSERT_EQ(latents.keys.size(), 6u * 8 * 4);
  EXPECT_EQ(latents.At<float>(latents.keys, 5 * 8), 21.0f);
  EXPECT_TRUE(latents.values.empty()) << "K only";
}

// A service over a core whose copies a test ends.
class HeldMaterializeTest : public ::testing::Test {
 protected:
  HeldMaterializeTest() {
    CacheParts parts;
    parts.manager = &copies_.manager();
    parts.layout = &pools_->layout();
    parts.pools = pools_.get();
    caches_.Add(std::make_shared<const CacheParts>(std::move(parts)));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::CacheService::NewStub(
        grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials()));
    // The prompt's first two blocks come up from the lower tier.
    const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8};
    copies_.Offload(session_, prompt);
    copies_.Finish();
    std::vector<TokenId> longer = prompt;
    longer.push_back(9);
    added_ = copies_.Run<AddedSequence>(session_,
                                        AddSequence{.sequence = SequenceId(1), .tokens = longer});
    EXPECT_EQ(added_.matched_tokens, 8u);
    EXPECT_GT(added_.ready, copies_.manager().Read(
                                [](const BlockManager& core) { return core.completed_ticket(); }));
  }
  ~HeldMaterializeTest() override { server_->Shutdown(); }

  v1::MaterializeRequest Request() {
    v1::SessionRef session;
    SessionToProto(session_, &session);
    return RequestOf(session, 1, 0);
  }
  // Writes 1, 2, ... into the slots of the sequence's first blocks: K and V of a token are one
  // element each.
  void WriteSlots() {
    float value = 0;
    for (int block = 0; block < 2; ++block) {
      const SlotIndex slot = added_.tables[0].blocks[block].slot;
      const absl::Span<std::byte> bytes = pools_->pool(0, 0).slot(slot);
      for (size_t i = 0; i < bytes.size(); i += sizeof(value)) {
        value += 1;
        std::memcpy(&bytes[i], &value, sizeof(value));
      }
    }
  }

  const std::string endpoint_ =
      absl::StrCat("unix:", testing::TempDir(), "/pagoda-rows-test-", getpid(), ".sock");
  HeldCopies copies_;
  const std::unique_ptr<PoolSet> pools_ =
      PoolSet::Create(*CacheLayout::Create(
                          {.tokens_per_block = 4, .layers = {{.num_kv_heads = 1, .head_dim = 1}}}),
                      SlotCounts{.tiers = {{8}, {8}}}, absl::StrCat("rows-test-", getpid()))
          .value();
  const SessionRef session_ = copies_.Open();
  AddedSequence added_;
  CacheDirectory caches_;
  ServingState state_;
  RpcMetrics rpcs_;
  const TenantTable tenants_ = *TenantTable::Create({}, 1);
  const std::unique_ptr<Authenticator> authenticator_ = *Authenticator::Create(Config());
  const Admission admission_{/*max_calls=*/2, &rpcs_.open_calls(), authenticator_.get(), &tenants_};
  CacheService service_{{.default_lease = absl::Seconds(30), .max_lease = absl::Hours(1)},
                        &caches_,
                        &state_,
                        &admission_,
                        &rpcs_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::CacheService::Stub> stub_;
};

TEST_F(HeldMaterializeTest, WaitsForTheCopiesIntoItsSlots) {
  std::thread copier([&] {
    absl::SleepFor(absl::Milliseconds(100));
    WriteSlots();
    copies_.Finish();
  });
  const Answer answer = Read(*stub_, Request());
  copier.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.layer.token_end(), 8u);
  EXPECT_EQ(answer.At<float>(answer.keys, 0), 1.0f);
  EXPECT_EQ(answer.At<float>(answer.values, 3), 8.0f);
  EXPECT_EQ(answer.At<float>(answer.keys, 7), 12.0f);
}

TEST_F(HeldMaterializeTest, TokensWhoseCopyFailsAreNotComputed) {
  std::thread copier([&] {
    absl::SleepFor(absl::Milliseconds(50));
    copies_.Finish(absl::DataLossError("planted"));
  });
  v1::MaterializeRequest request = Request();
  request.set_token_end(8);
  const Answer answer = Read(*stub_, request);
  copier.join();
  EXPECT_EQ(answer.reason(), "INVALID_ARGUMENT") << answer.status.error_message();
}

// A waiting call takes no thread, and gives its stream back when its client leaves.
TEST_F(HeldMaterializeTest, ADeadlineEndsTheWait) {
  // The server may learn of the end of the call before a moment later.
  const auto ends_by_its_deadline = [&] {
    for (int i = 0; i < 100; ++i) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
      const auto reader = stub_->Materialize(&context, Request());
      v1::MaterializeResponse response;
      EXPECT_FALSE(reader->Read(&response));
      const grpc::StatusCode code = reader->Finish().error_code();
      if (code != grpc::StatusCode::RESOURCE_EXHAUSTED) {
        return code == grpc::StatusCode::DEADLINE_EXCEEDED;
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(ends_by_its_deadline()) << i;
    ASSERT_EQ(rpcs_.WaitUntilNoneOpen(absl::Seconds(10)), 0u);
  }
  WriteSlots();
  copies_.Finish();
  Answer answer;
  for (int i = 0; i < 100; ++i) {
    answer = Read(*stub_, Request());
    if (answer.reason() != "TOO_MANY_CALLS") break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(answer.layer.token_end(), 8u) << answer.status.error_message();
}

}  // namespace
}  // namespace pagoda::server
