#include "server/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/policy/eviction_policy.h"
#include "server/config/tenant_options.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The message with which a text is refused; "accepted" if it is valid.
std::string Refusal(const std::string& text) {
  const absl::StatusOr<Config> config = ParseConfig(text, "pagodad.yaml");
  if (config.ok()) return "accepted";
  EXPECT_EQ(ReasonOf(config.status()), Reason::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(ConfigTest, AnEmptyFileIsTheDefault) {
  for (const char* text : {"", "# nothing\n", "cache:\nserver:\n", "{}"}) {
    const absl::StatusOr<Config> config = ParseConfig(text, "pagodad.yaml");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(PrintConfig(*config), PrintConfig(Config{}));
  }
}

TEST(ConfigTest, DefaultNeedsNoFileAndNoModel) {
  const Config config;
  EXPECT_EQ(config.cache.tokens_per_block, 32u);
  EXPECT_EQ(config.server.grpc_address, "127.0.0.1:7070");
  EXPECT_EQ(config.engine.model_dir, "");
  EXPECT_TRUE(ValidateConfig(config).ok());
}

TEST(ConfigTest, EveryKindOfValueIsRead) {
  const absl::StatusOr<Config> config = ParseConfig(
      "cache: {name: a-b, kv_dtype: bfloat16, primary: 77, layers: {head_dim: 8}}\n"
      "server: {drain_timeout: 1.5s, reflection: false, unix_socket: \"\"}\n"
      "events: {lifecycle: off}\n"
      "log: {level: error}\n",
      "pagodad.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->cache.name, "a-b");
  EXPECT_EQ(config->cache.kv_dtype, DType::kBFloat16);
  EXPECT_THAT(std::get<BlockBudget>(config->cache.primary).blocks, ElementsAre(77));
  ASSERT_EQ(config->cache.layers.size(), 1u);
  EXPECT_EQ(config->cache.layers[0].head_dim, 8u);
  EXPECT_EQ(config->cache.layers[0].count, Config::Cache::Layers().count);
  EXPECT_EQ(config->server.drain_timeout, absl::Milliseconds(1500));
  EXPECT_FALSE(config->server.reflection);
  EXPECT_EQ(config->server.unix_socket, "");
  EXPECT_EQ(config->events.lifecycle, LifecycleEvents::kOff);
  EXPECT_EQ(config->log.level, LogLevel::kError);
}

TEST(ConfigTest, ATiersSizeIsBlocksBytesOrAShareOfTheFreeMemory) {
  const auto primary = [](const std::string& value) {
    const auto config = ParseConfig("cache: {primary: " + value + "}", "pagodad.yaml");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->cache.primary : TierBudget();
  };
  EXPECT_THAT(std::get<BlockBudget>(primary("[5, 6]")).blocks, ElementsAre(5, 6));
  EXPECT_EQ(std::get<ByteBudget>(primary("100B")).bytes, 100u);
  EXPECT_EQ(std::get<ByteBudget>(primary("3KiB")).bytes, 3u << 10);
  EXPECT_EQ(std::get<ByteBudget>(primary("3MiB")).bytes, 3u << 20);
  EXPECT_EQ(std::get<ByteBudget>(primary("8GiB")).bytes, uint64_t{8} << 30);
  EXPECT_EQ(std::get<ByteBudget>(primary("2TiB")).bytes, uint64_t{2} << 40);
  EXPECT_EQ(std::get<ByteBudget>(primary("8GB")).bytes, 8'000'000'000u);
  EXPECT_EQ(std::get<ByteBudget>(primary("1.5 GiB")).bytes, uint64_t{3} << 29);
  EXPECT_EQ(std::get<FractionBudget>(primary("12.5%")).fraction, 0.125);
  EXPECT_EQ(std::get<FractionBudget>(primary("100%")).fraction, 1.0);
}

TEST(ConfigTest, TiersAreAListOrTwoShortForms) {
  const auto tiers = [](const std::string& keys) {
    const auto config = ParseConfig("cache: {" + keys + "}", "pagodad.yaml");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->cache.AllTiers() : std::vector<Config::Cache::TierConfig>();
  };
  const auto one = tiers("primary: 5, offload: {watermark_permille: 9}");
  ASSERT_EQ(one.size(), 1u) << "no blocks, no tier";
  EXPECT_EQ(one[0].name, "primary");
  EXPECT_EQ(one[0].watermark_permille, 9u);
  const auto two = tiers("primary: 5, secondary: 1GiB, offload: {min_priority: 7}");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].name, "secondary");
  EXPECT_EQ(two[1].min_priority, 7u);
  EXPECT_EQ(std::get<ByteBudget>(two[1].size).bytes, 1u << 30);

  const auto list = tiers(
      "tiers: [{name: hbm, size: 50%, watermark_permille: 20}, {size: 4, min_priority: 60}, "
      "{size: [7]}, {medium: disk, size: 1TiB, path: /d}], offload: {copy_threads: 3}, "
      "model: {name: x}");
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].name, "hbm");
  EXPECT_EQ(std::get<FractionBudget>(list[0].size).fraction, 0.5);
  EXPECT_EQ(list[0].watermark_permille, 20u);
  EXPECT_EQ(list[1].name, "secondary");
  EXPECT_EQ(list[1].medium, std::nullopt);
  EXPECT_EQ(list[1].min_priority, 60u);
  EXPECT_EQ(list[2].name, "tier2");
  EXPECT_EQ(list[3].medium, Medium::kDisk);
  EXPECT_EQ(list[3].name, "tier3");
}

TEST(ConfigTest, AListOfTiersHasToFit) {
  const std::string two = "tiers: [{name: a, size: 4}, {name: b, size: 4}]";
  for (const char* also : {"primary: 4", "secondary: 4", "offload: {min_priority: 1}",
                           "offload: {watermark_permille: 1}"}) {
    EXPECT_THAT(Refusal("cache: {" + two + ", " + also + "}"),
                AllOf(StartsWith("pagodad.yaml:1: "), HasSubstr("short form")))
        << also;
  }
  const auto of_list = [](const std::string& list) {
    return Refusal("cache: {tiers: [" + list + "]}");
  };
  EXPECT_THAT(of_list("{name: a}, {name: a}"), HasSubstr("two tiers 'a'"));
  EXPECT_THAT(of_list("{}, {}, {}, {}, {}"), HasSubstr("5 tiers; at most 4"));
  EXPECT_THAT(of_list("{name: a b}"), HasSubstr("'a b' is not a tier name"));
  EXPECT_THAT(of_list("{medium: tape}"), HasSubstr("auto, gpu, host, disk"));
  EXPECT_THAT(of_list("{medium: disk}"), HasSubstr("'primary' is the first"));
  EXPECT_THAT(of_list("{}, {medium: gpu}"), HasSubstr("'secondary' is not the first"));
  EXPECT_THAT(of_list("{}, {medium: disk, size: 10%}"), HasSubstr("share of a disk"));
  EXPECT_THAT(of_list("{min_priority: 101}"), HasSubstr("0 to 100"));
  EXPECT_THAT(Refusal("cache: {primary_memory: cuda, tiers: [{medium: host}]}"),
              HasSubstr("contradict each other"));
  const auto host = ParseConfig("cache: {tiers: [{medium: host, size: 4}]}", "f");
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->cache.primary_memory, PrimaryMemory::kHost);
}

TEST(ConfigTest, AQuotaNamesATierOfTheCache) {
  const std::string cache = "cache: {tiers: [{name: hbm, size: 9}, {name: ram, size: 9}]}\n";
  const auto config = ParseConfig(
      cache + "tenants: [{name: a, quotas: [{tier: ram, blocks: 3}], primary_blocks: 5}]", "f");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<TenantOptions> tenants = TenantsOf(*config);
  ASSERT_EQ(tenants.size(), 1u);
  EXPECT_THAT(tenants[0].quota_blocks, ElementsAre(5, 3, kNoQuota, kNoQuota));
  EXPECT_THAT(Refusal(cache + "tenants: [{name: a, quotas: {tier: disk, blocks: 3}}]"),
              HasSubstr("quota for the tier 'disk', which the cache does not have"));
  EXPECT_THAT(Refusal(cache + "tenants: [{name: a, primary_blocks: 1, "
                              "quotas: {tier: hbm, blocks: 3}}]"),
              HasSubstr("two quotas for the tier 'hbm'"));
}

TEST(ConfigTest, APrintedListOfTiersReadsBack) {
  const auto config = ParseConfig(
      "cache: {tiers: [{name: hbm, size: [3, 4]}, {medium: host, size: 12.5%, min_priority: 9}]}\n"
      "tenants: {name: a, quotas: [{tier: hbm, blocks: 3}, {tier: secondary, blocks: 1}]}",
      "f");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string printed = PrintConfig(*config);
  EXPECT_THAT(printed,
              AllOf(HasSubstr("name: \"hbm\""), HasSubstr("size: 12.5%"),
                    Not(HasSubstr("primary:")), Not(HasSubstr("offload:\n    min_priority"))));
  const absl::StatusOr<Config> read = ParseConfig(printed, "printed");
  ASSERT_TRUE(read.ok()) << read.status() << printed;
  EXPECT_EQ(PrintConfig(*read), printed);
  EXPECT_EQ(read->cache.AllTiers().at(1).min_priority, 9u);
}

TEST(ConfigTest, TheMapSocketIsBesideTheUnixSocketUnlessItIsNamed) {
  const auto path = [](const std::string& keys) {
    return ParseConfig(absl::StrCat("server: {", keys, "}"), "f")->server.MapSocketPath();
  };
  EXPECT_EQ(path("unix_socket: /run/p.sock"), "/run/p.sock.map");
  EXPECT_EQ(path("unix_socket: \"\""), "");
  EXPECT_EQ(path("unix_socket: /run/p.sock, map_socket: \"\""), "");
  EXPECT_EQ(path("unix_socket: \"\", map_socket: /run/q.sock"), "/run/q.sock");
  EXPECT_EQ(path("map_socket: q.sock"), (std::filesystem::current_path() / "q.sock").string());
}

TEST(ConfigTest, LayersAreOneMappingOrAListOfThem) {
  const auto config = ParseConfig(
      "cache:\n  layers:\n  - {count: 5, window: 1024}\n  - {count: 1, kind: key_only}\n",
      "pagodad.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->cache.layers.size(), 2u);
  EXPECT_EQ(config->cache.layers[0].count, 5u);
  EXPECT_EQ(config->cache.layers[0].window, 1024u);
  EXPECT_EQ(config->cache.layers[0].kind, KvKind::kKeyAndValue);
  EXPECT_EQ(config->cache.layers[1].window, 0u);
  EXPECT_EQ(config->cache.layers[1].kind, KvKind::kKeyOnly);
  EXPECT_THAT(Refusal("cache:\n  layers:\n  - count: 5\n  - heads: 2\n"),
              AllOf(StartsWith("pagodad.yaml:4: "), HasSubstr("num_kv_heads")));
}

TEST(ConfigTest, AnUnknownKeyIsRefusedWithItsLineAndWhatIsAllowed) {
  EXPECT_THAT(
      Refusal("cache:\n  name: x\n  tokens: 4\n"),
      AllOf(StartsWith("pagodad.yaml:3: "), HasSubstr("'tokens'"), HasSubstr("tokens_per_block")));
  EXPECT_THAT(Refusal("\nsever: {}\n"), AllOf(StartsWith("pagodad.yaml:2: "), HasSubstr("server")));
  EXPECT_THAT(Refusal("cache:\n  layers:\n    heads: 1\n"),
              AllOf(StartsWith("pagodad.yaml:3: "), HasSubstr("num_kv_heads")));
}

TEST(ConfigTest, AKeyComesOnce) {
  EXPECT_THAT(Refusal("log: {level: info}\nlog: {level: error}\n"),
              AllOf(StartsWith("pagodad.yaml:2: "), HasSubstr("twice")));
}

TEST(ConfigTest, ABadValueIsRefusedWithItsLineAndWhatIsAllowed) {
  struct Case {
    const char* text;
    const char* named;
    const char* allowed;
  };
  const Case cases[] = {
      {"cache: {tokens_per_block: many}", "'many'", "1 to 1024"},
      {"cache: {tokens_per_block: 33}", "33", "power of two"},
      {"cache: {tokens_per_block: -4}", "'-4'", "1 to 1024"},
      {"cache: {tokens_per_block: 1.5}", "'1.5'", "whole number"},
      {"cache: {primary: 0}", "primary is '0'", "1 to 268435456 blocks"},
      {"cache: {primary: [8, 0]}", "primary is a list", "by window"},
      {"cache: {primary: []}", "a list", "by window"},
      {"cache: {primary: }", "nothing", "blocks"},
      {"cache: {primary: 268435457}", "'268435457'", "8GiB"},
      {"cache: {primary: 0GiB}", "'0GiB'", "8GiB"},
      {"cache: {primary: 1.5}", "'1.5'", "8GiB"},
      {"cache: {primary: 16777216TiB}", "'16777216TiB'", "8GiB"},
      {"cache: {primary: 0%}", "'0%'", "50%"},
      {"cache: {primary: 101%}", "'101%'", "50%"},
      {"cache: {primary: x%}", "'x%'", "50%"},
      {"cache: {primary_memory: gpu}", "'gpu'", "auto, host, cuda"},
      {"cache: {device: -1}", "'-1'", "0 to 1023"},
      {"cache: {pin_lower: true}", "'true'", "required, preferred, off"},
      {"cache: {huge_pages: 4KiB}", "'4KiB'", "auto, 2MiB, 1GiB, off"},
      {"cache: {secondary: 268435457}", "secondary", "0 to 268435456"},
      {"cache: {secondary: {blocks: 3}}", "a mapping", "blocks"},
      {"cache: {layers: []}", "layers is a list", "list of mappings"},
      {"cache: {layers: [4]}", "layers is '4'", "list of mappings"},
      {"cache: {layers: {kind: value}}", "'value'", "key_value, key_only, opaque"},
      {"cache: {eviction_policy: fifo}", "'fifo'", "there are learned, lru"},
      {"cache: {pin_budget_permille: 1001}", "'1001'", "0 to 1000"},
      {"cache: {offload: {min_priority: 101}}", "'101'", "0 to 100"},
      {"cache: {offload: {copy_threads: 0}}", "'0'", "1 to 64"},
      {"cache: {kv_dtype: float12}", "'float12'", "float32, float16, bfloat16, fp8_e4m3"},
      {"cache: {name: a/b}", "'a/b'", "letters"},
      {"cache: {layers: 4}", "layers is '4'", "a mapping"},
      {"server: {reflection: maybe}", "'maybe'", "true or false"},
      {"server: {drain_timeout: 10}", "'10'", "with its unit"},
      {"server: {drain_timeout: -1s}", "'-1s'", "from 0"},
      {"server: {grpc_address: nowhere}", "'nowhere'", "HOST:PORT"},
      {"server: {grpc_address: \"127.0.0.1:99999\"}", "99999", "65535"},
      {"server: {tls: {client_certificates: maybe}}", "'maybe'", "none, optional, required"},
      {"server: {max_calls: 0}", "'0'", "1 to 1048576"},
      {"tenants: [{name: a b}]", "'a b'", "without blanks"},
      {"tenants: [{name: a, subjects: {b: c}}]", "a mapping", "a list of texts"},
      {"tenants: [{name: a, subjects: [[b]]}]", "a list", "a list of texts"},
      {"tenants: [{name: a, share: 0}]", "'0'", "1 to 1000000"},
      {"operators: {token: x}", "'token'", "tokens_file, subjects"},
      {"server: {http_address: \"example.org:7071\"}", "example.org", "numeric address"},
      {"events: {lifecycle: some}", "'some'", "off, raw, all"},
      {"log: {level: 3}", "'3'", "info, warning, error"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Refusal(std::string("\n") + c.text),
                AllOf(StartsWith("pagodad.yaml:2: "), HasSubstr(c.named), HasSubstr(c.allowed)))
        << c.text;
  }
}

TEST(ConfigTest, BrokenYamlIsRefusedWithItsLine) {
  EXPECT_THAT(Refusal("cache:\n  name: [\n"), StartsWith("pagodad.yaml:"));
  EXPECT_THAT(Refusal("- cache\n"), AllOf(StartsWith("pagodad.yaml:1: "), HasSubstr("mapping")));
}

TEST(ConfigTest, TextIsUtf8) {
  EXPECT_EQ(Refusal("engine: {model_dir: \"\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80\"}"), "accepted");
  for (const char* text :
       {"\xFF", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_THAT(Refusal(std::string("engine:\n  model_dir: \"") + text + "/x\""),
                AllOf(StartsWith("pagodad.yaml:2: "), HasSubstr("UTF-8")));
  }
}

TEST(ConfigTest, KeysThatContradictEachOtherAreRefused) {
  EXPECT_THAT(Refusal("server: {grpc_address: \"\", unix_socket: \"\"}"), HasSubstr("needs one"));
  EXPECT_THAT(Refusal("sessions: {default_lease: 2h}"), HasSubstr("max_lease"));
  EXPECT_THAT(Refusal("cache: {primary_memory: cuda, warm_restart: true, model: {name: x}}"),
              HasSubstr("GPU memory ends with the daemon"));
  EXPECT_EQ(Refusal("cache: {primary_memory: auto, warm_restart: true, model: {name: x}}"),
            "accepted");
}

// Without a name, a later daemon could serve the kept KV to another model with the same layers.
TEST(ConfigTest, OnlyTheKvOfAModelWithANameIsKept) {
  EXPECT_THAT(Refusal("cache: {warm_restart: true}"), HasSubstr("cache.model.name"));
  EXPECT_THAT(Refusal("cache: {warm_restart: true, layers: {count: 2}}"),
              HasSubstr("cache.model.name"));
  EXPECT_EQ(Refusal("cache: {warm_restart: true, model: {name: org/tiny}}"), "accepted");
  EXPECT_EQ(Refusal("cache: {warm_restart: true, model_dir: x}"), "accepted");
  EXPECT_EQ(Refusal("cache: {warm_restart: true}\nengine: {model_dir: x}"), "accepted");
}

TEST(ConfigTest, PlaintextStaysOnThisMachineUnlessTheOperatorSaysOtherwise) {
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1"}) {
    for (const char* key : {"grpc_address", "http_address"}) {
      const std::string server = std::string("{") + key + ": \"" + address + "\"";
      const bool http = std::string(key) == "http_address";
      const std::string permission = http ? "http_insecure: true" : "insecure: true";
      EXPECT_THAT(Refusal("server: " + server + "}"),
                  AllOf(HasSubstr(address), HasSubstr(key), HasSubstr("without TLS"),
                        HasSubstr("server." + permission)));
      // The message suggests a proxy only with callers, whom the daemon can then tell apart.
      EXPECT_EQ(
          Refusal("server: " + server + "}").find("tenants or operators") != std::string::npos,
          http);
      EXPECT_EQ(Refusal("server: " + server + ", " + permission + "}"), "accepted");
      // Each key permits only its own address.
      const std::string other = http ? "insecure: true" : "http_insecure: true";
      EXPECT_THAT(Refusal("server: " + server + ", " + other + "}"), HasSubstr(key));
    }
  }
  for (const char* address : {"127.0.0.1:1", "[::1]:1", "localhost:1", ""}) {
    EXPECT_EQ(Refusal(std::string("server: {grpc_address: \"") + address + "\"}"), "accepted");
  }
  const std::string tls = "tls: {certificate: c, key: k}";
  EXPECT_EQ(Refusal("server: {grpc_address: \"0.0.0.0:1\", " + tls + "}"), "accepted");
  EXPECT_THAT(Refusal("server: {http_address: \"0.0.0.0:1\", " + tls + "}"),
              HasSubstr("HTTP has none"));
}

TEST(ConfigTest, AZmqEndpointStaysOnThisMachineUnlessTheOperatorSaysOtherwise) {
  const auto zmq = [](const std::string& keys) { return "events: {zmq: {" + keys + "}}\n"; };
  for (const char* open : {"tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://router.example:5557"}) {
    const std::string endpoint = absl::StrCat("endpoint: '", open, "'");
    EXPECT_THAT(Refusal(zmq(endpoint)), AllOf(HasSubstr(open), HasSubstr("server.insecure")));
    EXPECT_TRUE(ParseConfig(zmq(endpoint) + "server: {insecure: true}", "x").ok()) << open;
    EXPECT_THAT(Refusal(zmq(absl::StrCat("endpoint: 'ipc:///tmp/x', replay_", endpoint))),
                HasSubstr("events.zmq.replay_endpoint"));
  }
  EXPECT_TRUE(ParseConfig(zmq("endpoint: 'tcp://[::1]:5557'"), "x").ok());
  // This is how to listen on loopback's IPv4 address; every interface stays refused.
  EXPECT_EQ(Refusal(zmq("endpoint: 'tcp://127.0.0.1:5557', mode: listen")), "accepted");
  EXPECT_THAT(Refusal(zmq("endpoint: 'tcp://*:5557', mode: listen")),
              HasSubstr("tcp://127.0.0.1:PORT with events.zmq.mode: listen"));
  EXPECT_THAT(Refusal(zmq("replay_endpoint: 'ipc:///tmp/x'")), HasSubstr("events.zmq.endpoint"));
  EXPECT_THAT(Refusal(zmq("endpoint: 'udp://x'")), HasSubstr("pagodad.yaml:1: "));
}

// A file's mode restricts access; loopback and an abstract name do not.
TEST(ConfigTest, WhereCallersAreKnownAZmqEndpointIsAFile) {
  for (const char* callers :
       {"operators: {tokens_file: o}\n", "tenants: [{name: alice, tokens_file: a}]\n"}) {
    const auto text = [&](const std::string& keys) {
      return absl::StrCat(callers, "events: {zmq: {", keys, "}}\n");
    };
    for (const char* open : {"tcp://[::1]:5557", "tcp://127.0.0.1:5557", "ipc://@events"}) {
      const std::string endpoint = absl::StrCat("endpoint: '", open, "'");
      EXPECT_THAT(Refusal(text(endpoint)),
                  AllOf(HasSubstr(open), HasSubstr("credentials"), HasSubstr("server.insecure")));
      EXPECT_THAT(Refusal(text(absl::StrCat("endpoint: 'ipc:///tmp/x', replay_", endpoint))),
                  HasSubstr("events.zmq.replay_endpoint"));
      EXPECT_EQ(Refusal(text(endpoint) + "server: {insecure: true}"), "accepted");
      EXPECT_EQ(Refusal(absl::StrCat("events: {zmq: {", endpoint, "}}")), "accepted");
    }
    EXPECT_EQ(Refusal(text("endpoint: 'ipc:///tmp/x', replay_endpoint: 'ipc:///tmp/y'")),
              "accepted");
    EXPECT_EQ(Refusal(text("endpoint: 'inproc://x'")), "accepted");
  }
}

TEST(ConfigTest, WhatTlsAndCallersNeedOfEachOtherIsRefusedWhereItIsMissing) {
  const auto with_ca = [](const std::string& rest) {
    return "server: {tls: {certificate: c, key: k, client_ca: ca, client_certificates: "
           "optional}}\n" +
           rest;
  };
  EXPECT_THAT(Refusal("server: {tls: {certificate: c}}"), HasSubstr("go together"));
  EXPECT_THAT(Refusal("server: {tls: {key: k}}"), HasSubstr("go together"));
  EXPECT_THAT(Refusal("server: {tls: {client_ca: c}}"), HasSubstr("certificate is empty"));
  EXPECT_THAT(Refusal("server: {tls: {certificate: c, key: k, client_ca: ca}}"),
              HasSubstr("client_certificates"));
  EXPECT_THAT(Refusal("server: {tls: {certificate: c, key: k, client_certificates: required}}"),
              HasSubstr("client_ca"));
  EXPECT_THAT(Refusal("operators: {subjects: root}"), HasSubstr("client_certificates is none"));
  EXPECT_EQ(Refusal(with_ca("operators: {subjects: root}")), "accepted");
  EXPECT_THAT(Refusal(with_ca("operators: {subjects: [x]}\ntenants: {name: a, subjects: x}")),
              HasSubstr("two callers"));
  EXPECT_THAT(Refusal("tenants: [{name: a}, {name: a}]"), HasSubstr("two tenants 'a'"));
  EXPECT_THAT(Refusal("tenants: [{shares: true}]"), HasSubstr("no name"));
}

TEST(ConfigTest, TenantsAndOperatorsAreRead) {
  const auto config = ParseConfig(
      "server: {tls: {certificate: c, key: k, client_ca: ca, client_certificates: required}, "
      "max_sequences: 900, max_sequence_bytes: 8000000}\n"
      "tenants:\n"
      "- {name: a, tokens_file: a.tokens, subjects: [x, y], share: 3, primary_blocks: 7, "
      "max_priority: 4, max_sequences: 100, max_sequence_bytes: 5000}\n"
      "- {name: b, shares: true, quotas: {tier: primary, blocks: 9}}\n"
      "operators: {tokens_file: ops, subjects: root}\n"
      "default_tenant: {share: 5}\n",
      "pagodad.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->tenants.size(), 2u);
  EXPECT_EQ(config->tenants[0].name, "a");
  EXPECT_EQ(config->tenants[0].credentials.tokens_file, "a.tokens");
  EXPECT_THAT(config->tenants[0].credentials.subjects, ElementsAre("x", "y"));
  EXPECT_EQ(config->tenants[0].quota.share, 3u);
  EXPECT_EQ(config->tenants[0].quota.primary_blocks, 7u);
  EXPECT_EQ(config->tenants[0].max_priority, 4u);
  EXPECT_EQ(config->server.max_sequences, 900u);
  EXPECT_EQ(config->server.max_sequence_bytes, 8'000'000u);
  EXPECT_EQ(config->tenants[0].quota.max_sequences, 100u);
  EXPECT_EQ(config->tenants[0].quota.max_sequence_bytes, 5000u);
  EXPECT_EQ(config->tenants[1].quota.max_sequences, 0u);
  EXPECT_EQ(config->tenants[1].max_priority, 0u);
  EXPECT_TRUE(config->tenants[1].shares);
  ASSERT_EQ(config->tenants[1].quota.tiers.size(), 1u);
  EXPECT_EQ(config->tenants[1].quota.tiers[0].blocks, 9u);
  EXPECT_THAT(config->operators.subjects, ElementsAre("root"));
  EXPECT_EQ(config->default_tenant_share, 5u);
  EXPECT_TRUE(config->knows_callers());
  EXPECT_FALSE(Config().knows_callers());
  const auto again = ParseConfig(PrintConfig(*config), "printed.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(PrintConfig(*again), PrintConfig(*config));
}

TEST(ConfigTest, NothingThatIsThereIsLeftUnread) {
  const auto two = ParseConfig("cache: {name: a}\n---\ncache: {name: b}\n", "pagodad.yaml");
  EXPECT_THAT(std::string(two.status().message()), HasSubstr("second document"));
  // yaml-cpp takes unreadable text here for one more document, endlessly.
  for (const char* text : {",", "cache: {name: a}\n,", "{}]", "a: 1\n}"}) {
    EXPECT_NE(Refusal(text), "accepted") << text;
  }
  EXPECT_EQ(LoadConfig("/tmp").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadConfig("").status().code(), absl::StatusCode::kNotFound);
}

TEST(ConfigTest, PrintedConfigurationReadsBack) {
  Config config;
  config.cache.name = "round.trip";
  config.cache.kv_dtype = DType::kFloat16;
  config.cache.primary = BlockBudget{{3, 4}};
  config.cache.secondary = FractionBudget{.fraction = 0.125};
  config.cache.primary_memory = PrimaryMemory::kCuda;
  config.cache.device = 3;
  config.cache.pin_lower = Pinning::kPreferred;
  config.cache.huge_pages = HugePages::k1GiB;
  config.cache.layers = {{.count = 3, .window = 7}, {.kind = KvKind::kKeyOnly}};
  config.cache.eviction_policy = EvictionPolicyNames().back();
  config.cache.offload.min_priority = 50;
  config.server.unix_socket = "/tmp/with space: and # marks.sock";
  config.server.http_address = "";
  config.server.drain_timeout = absl::Milliseconds(1250);
  config.server.reflection = false;
  config.events.max_events = 123;
  config.events.lifecycle = LifecycleEvents::kOff;
  config.cache.model = {.name = "org/tiny", .revision = "v1"};
  config.log.level = LogLevel::kWarning;
  const std::string printed = PrintConfig(config);
  const absl::StatusOr<Config> read = ParseConfig(printed, "printed");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PrintConfig(*read), printed);
  EXPECT_EQ(read->server.unix_socket, config.server.unix_socket);
  EXPECT_EQ(read->server.drain_timeout, config.server.drain_timeout);
  EXPECT_EQ(read->events.lifecycle, LifecycleEvents::kOff);
  EXPECT_EQ(read->cache.primary_memory, PrimaryMemory::kCuda);
  EXPECT_EQ(read->cache.device, 3u);
  EXPECT_EQ(read->cache.model.Identity(), "org/tiny@v1");
  EXPECT_EQ(read->cache.pin_lower, Pinning::kPreferred);
  EXPECT_EQ(read->cache.huge_pages, HugePages::k1GiB);
  EXPECT_EQ(std::get<FractionBudget>(read->cache.secondary).fraction, 0.125);
  EXPECT_EQ(read->cache.layers.at(1).kind, KvKind::kKeyOnly);

  config.cache.primary = ByteBudget{uint64_t{3} << 29};
  EXPECT_THAT(PrintConfig(config), HasSubstr("primary: 1536MiB"));
  EXPECT_THAT(PrintConfig(config), HasSubstr("secondary: 12.5%"));
}

TEST(ConfigTest, AModelFolderIsRelativeToTheFile) {
  const std::string file = ::testing::TempDir() + "/model_folder.yaml";
  std::ofstream(file) << "engine: {model_dir: models/tiny}\n";
  const absl::StatusOr<Config> config = LoadConfig(file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->engine.model_dir, ::testing::EndsWith("models/tiny"));
  EXPECT_THAT(config->engine.model_dir, StartsWith("/"));
  std::ofstream(file) << "cache: {model_dir: models/tiny}\n";
  const absl::StatusOr<Config> of_cache = LoadConfig(file);
  ASSERT_TRUE(of_cache.ok()) << of_cache.status();
  EXPECT_THAT(of_cache->cache.model_dir, ::testing::EndsWith("/models/tiny"));
  EXPECT_THAT(of_cache->cache.model_dir, StartsWith("/"));
  std::remove(file.c_str());
}

TEST(ConfigTest, ACacheHasOneModelAtMost) {
  const absl::StatusOr<Config> config =
      ParseConfig("cache: {model_dir: a}\nengine: {model_dir: b}\n", "two.yaml");
  EXPECT_EQ(ReasonOf(config.status()), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()),
              HasSubstr("cache.model_dir and engine.model_dir are both set"));
}

TEST(ConfigTest, TheModelOfLayersHasANameAndPerhapsARevision) {
  const auto identity = [](const std::string& keys) {
    const absl::StatusOr<Config> config = ParseConfig("cache: {" + keys + "}\n", "model.yaml");
    return config.ok() ? config->cache.model.Identity() : std::string(config.status().message());
  };
  EXPECT_EQ(identity("name: x"), "");
  EXPECT_EQ(identity("model: {name: org/tiny}"), "org/tiny");
  EXPECT_EQ(identity("model: {name: org/tiny, revision: v1.0}"), "org/tiny@v1.0");
  EXPECT_THAT(identity("model: {revision: v1}"), HasSubstr("cache.model.name is empty"));
  EXPECT_THAT(identity("model: {name: org/tiny@v1}"), HasSubstr("'org/tiny@v1'"));
  EXPECT_THAT(identity("model: {name: tiny, revision: \"a b\"}"), HasSubstr("'a b'"));
  EXPECT_THAT(identity("model: {name: " + std::string(257, 'x') + "}"), HasSubstr("at most 256"));
  EXPECT_THAT(identity("model: {name: tiny}, model_dir: x"), HasSubstr("model_dir"));
}

TEST(ConfigTest, AMissingFileIsNamed) {
  const absl::StatusOr<Config> config = LoadConfig("/nonexistent/pagodad.yaml");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("/nonexistent/pagodad.yaml"));
}

// The deploy example shows the default of each key. With its commented keys uncommented it must
// equal the default configuration and contain every key.
TEST(ConfigTest, TheDeployExampleShowsEveryKeyWithItsDefault) {
  std::ifstream in(DEPLOY_CONFIG);
  ASSERT_TRUE(in) << DEPLOY_CONFIG;
  const std::regex commented_key("^( +)# ( *[a-z_]+:.*)$");
  std::string text;
  for (std::string line; std::getline(in, line);) {
    text += std::regex_replace(line, commented_key, "$1$2") + "\n";
  }
  absl::StatusOr<Config> config = ParseConfig(text, "deploy/pagodad.yaml");
  ASSERT_TRUE(config.ok()) << config.status() << "\n" << text;
  EXPECT_THAT(config->engine.model_dir, HasSubstr("qwen3_tiny"));
  config->engine.model_dir = "";
  EXPECT_EQ(config->cache.tokens_per_block, 16u) << "what the example says about it";
  config->cache.tokens_per_block = Config().cache.tokens_per_block;
  Config expected;
  expected.server.unix_socket = "/tmp/pagoda.sock";
  EXPECT_EQ(PrintConfig(*config), PrintConfig(expected));

  std::istringstream printed(PrintConfig(expected));
  for (std::string line; std::getline(printed, line);) {
    const std::string key = line.substr(0, line.find(':') + 1);
    EXPECT_THAT("\n" + text, HasSubstr("\n" + key)) << "the example leaves out " << line;
  }
}

}  // namespace
}  // namespace pagoda::server
