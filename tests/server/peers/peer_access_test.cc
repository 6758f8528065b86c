// Who may read: tokens and TLS.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "server/callers/tokens_file.h"
#include "server/peers/login_guard.h"
#include "server/peers/peer_server.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/pools/store/resp_client.h"
#include "tests/server/peers/served_peer.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

const std::string kFirst = "the-first-token-1", kSecond = "the-second-token-2";

// Replaces the file as a whole, as a careful operator does.
void Replace(const std::string& path, const std::string& text) {
  {
    std::ofstream file(path + ".new");
    file << text;
  }
  chmod((path + ".new").c_str(), 0600);
  ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
}

class PeerTokensTest : public testing::Test {
 protected:
  PeerTokensTest() {
    Replace(file_, absl::StrCat("# two peers\n", kFirst, "\n", kSecond, "\n"));
    server_ = StartPeer({.tokens_file = file_, .login_timeout = absl::Seconds(2)});
    Serve(*server_, cache_);
    cache_.Compute(tokens_);
    name_ = NameOf(cache_, tokens_, 0);
  }
  uint16_t port() const { return server_->address().port; }

  const TempDirectory directory_;
  const std::string file_ = directory_.path() + "/tokens";
  ExchangedCache cache_;
  const Tokens tokens_ = TokensOf(1, 5 * kBlockTokens + 1);
  std::string name_;
  std::unique_ptr<PeerServer> server_;
};

TEST_F(PeerTokensTest, WithoutATokenNothingIsAnswered) {
  RespClient client(port());
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"PING"},
                                             {"GET", name_},
                                             {"EXISTS", name_},
                                             {"INFO"},
                                             {"CLUSTER", "SLOTS"},
                                             {"X"},
                                             {"SET", "a", "b"},
                                             {"HELLO"},
                                             {"HELLO", "2", "SETNAME", "x"},
                                             {"DBSIZE"}}) {
    EXPECT_TRUE(absl::StartsWith(client.Do(command).text, "NOAUTH")) << command[0];
  }
  EXPECT_TRUE(absl::StartsWith(client.Do({"HELLO", "3", "AUTH", "a", kFirst}).text, "NOPROTO"));
  EXPECT_TRUE(absl::StartsWith(client.Do({"EXISTS", name_}).text, "NOAUTH"));
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().refused_gets == 1; }));
}

TEST_F(PeerTokensTest, EachTokenLetsIn) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"AUTH", kFirst},
           {"AUTH", "anybody", kSecond},
           {"HELLO", "2", "AUTH", "x", kFirst},
           {"HELLO", "2", "SETNAME", "x", "AUTH", "x", kSecond}}) {
    RespClient client(port());
    EXPECT_NE(client.Do(command).kind, resp::Kind::kError);
    EXPECT_EQ(client.Do({"EXISTS", name_}).integer, 1);
  }
  EXPECT_EQ(server_->stats().authentication_failures, 0u);
}

TEST_F(PeerTokensTest, AWrongTokenDoesNotLetInAndTheThirdEndsTheConnection) {
  RespClient client(port());
  for (const std::string& wrong : {kFirst.substr(1), kFirst + "x", std::string()}) {
    EXPECT_TRUE(absl::StartsWith(client.Do({"AUTH", wrong}).text, "WRONGPASS"));
  }
  EXPECT_TRUE(absl::StartsWith(client.Do({"AUTH", kFirst}).text, "BROKEN"));
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().authentication_failures == 3; }));
}

TEST_F(PeerTokensTest, StrangersMaySendLittle) {
  RespClient client(port());
  EXPECT_TRUE(absl::StrContains(client.Do({"SET", "a", std::string(17 << 10, 'x')}).text,
                                "Protocol error"));
  RespClient many(port());
  EXPECT_TRUE(absl::StrContains(many.Do(std::vector<std::string>(11, "x")).text, "Protocol error"));
}

TEST_F(PeerTokensTest, StrangersAreClosedAfterAWhile) {
  RespClient client(port());
  EXPECT_TRUE(absl::StartsWith(client.Do({"PING"}).text, "NOAUTH"));
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().connections == 0; }));
}

TEST_F(PeerTokensTest, SilentStrangersKeepNobodyOut) {
  // Longer than the test.
  server_ = StartPeer({.tokens_file = file_, .login_timeout = absl::Minutes(5)});
  Serve(*server_, cache_);
  RespClient before(port());
  ASSERT_TRUE(before.Do({"AUTH", kFirst}).is_text("OK"));
  std::vector<std::unique_ptr<RespClient>> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(std::make_unique<RespClient>(port()));
  ASSERT_TRUE(WaitUntil([&] { return server_->stats().accepted == 301; }));
  RespClient peer(port());
  EXPECT_TRUE(peer.Do({"AUTH", kSecond}).is_text("OK"));
  EXPECT_EQ(peer.Do({"EXISTS", name_}).integer, 1);
  EXPECT_TRUE(before.Do({"PING"}).is_text("PONG")) << "its place is its own";
  EXPECT_LE(server_->stats().connections, 2 + PeerServer::kMaxStrangersOfNetwork);
}

TEST_F(PeerTokensTest, PeersTakeTheirPlacesWhenTheyAreLetIn) {
  server_ = StartPeer({.tokens_file = file_, .max_connections = 1});
  RespClient one(port()), another(port());
  ASSERT_TRUE(WaitUntil([&] { return server_->stats().connections == 2; }));
  ASSERT_TRUE(one.Do({"AUTH", kFirst}).is_text("OK"));
  another.Do({"AUTH", kFirst});
  EXPECT_TRUE(WaitUntil([&] { return absl::StartsWith(another.Do({"PING"}).text, "BROKEN"); }));
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().refused == 1; }));
  EXPECT_TRUE(one.Do({"PING"}).is_text("PONG"));
}

TEST_F(PeerTokensTest, GuessesAreSlow) {
  int checked = 0;
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 200; ++i) {
    const std::string text = RespClient(port()).Do({"AUTH", absl::StrCat("guess-", i)}).text;
    checked += absl::StartsWith(text, "WRONGPASS") ? 1 : 0;
    EXPECT_TRUE(absl::StartsWith(text, "WRONGPASS") ||
                absl::StartsWith(text, "ERR too many wrong tokens"))
        << text;
  }
  const double intervals = absl::FDivDuration(absl::Now() - begin, LoginGuard::kInterval);
  EXPECT_LE(checked, LoginGuard::kFree + static_cast<int>(intervals) + 1);
  EXPECT_GE(checked, LoginGuard::kFree);
  EXPECT_TRUE(WaitUntil([&] { return RespClient(port()).Do({"AUTH", kFirst}).is_text("OK"); }));
}

// Behind one address there can be many hosts.
TEST_F(PeerTokensTest, AFewWrongTokensKeepNoRightOneOut) {
  for (int i = 0; i < LoginGuard::kFree - 1; ++i) {
    const std::string text = RespClient(port()).Do({"AUTH", absl::StrCat("guess-", i)}).text;
    ASSERT_TRUE(absl::StartsWith(text, "WRONGPASS")) << text;
    ASSERT_TRUE(RespClient(port()).Do({"AUTH", kFirst}).is_text("OK")) << "after " << i + 1;
  }
}

TEST(LoginGuardTest, BoundsTheRateOfWrongTokens) {
  LoginGuard guard;
  absl::Time now = absl::UnixEpoch();
  int guesses = 0;
  const auto guess = [&] { guard.Failed("a", DigestOf(absl::StrCat(++guesses)), now); };
  for (int i = 0; i < LoginGuard::kFree; ++i) {
    EXPECT_EQ(guard.Wait("a", now), absl::ZeroDuration());
    guess();
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(guard.Wait("a", now), LoginGuard::kInterval);
    EXPECT_EQ(guard.Wait("b", now), absl::ZeroDuration());
    now += LoginGuard::kInterval;
    EXPECT_EQ(guard.Wait("a", now), absl::ZeroDuration());
    guess();
  }
  now += LoginGuard::kFree * LoginGuard::kInterval;
  for (int i = 0; i < LoginGuard::kFree; ++i) {
    EXPECT_EQ(guard.Wait("a", now), absl::ZeroDuration());
    guess();
  }
  EXPECT_EQ(guard.Wait("a", now), LoginGuard::kInterval);
}

TEST(LoginGuardTest, AWrongTokenThatComesAgainIsNoGuess) {
  LoginGuard guard;
  for (int i = 0; i < 100; ++i) guard.Failed("a", DigestOf("wrong"), absl::UnixEpoch());
  EXPECT_EQ(guard.Wait("a", absl::UnixEpoch()), absl::ZeroDuration());
}

TEST(LoginGuardTest, AHostIsOneNetwork) {
  const auto network = [](const char* text) {
    sockaddr_storage address = {};
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1) {
      address.ss_family = AF_INET;
    } else {
      EXPECT_EQ(inet_pton(AF_INET6, text, &six.sin6_addr), 1) << text;
      address.ss_family = AF_INET6;
    }
    return NetworkOf(address);
  };
  EXPECT_NE(network("10.0.0.1"), network("10.0.0.2"));
  EXPECT_EQ(network("10.0.0.1"), network("::ffff:10.0.0.1"));
  EXPECT_EQ(network("2001:db8::1"), network("2001:db8::ffff:2"));
  EXPECT_NE(network("2001:db8::1"), network("2001:db8:0:1::1"));
}

TEST_F(PeerTokensTest, TheFileCanBeReplaced) {
  RespClient first(port()), second(port());
  ASSERT_TRUE(first.Do({"AUTH", kFirst}).is_text("OK"));
  ASSERT_TRUE(second.Do({"AUTH", kSecond}).is_text("OK"));
  // Not a token: the earlier ones stay.
  Replace(file_, "short\n");
  const std::string third = "the-third-token-3";
  EXPECT_FALSE(RespClient(port()).Do({"AUTH", third}).is_text("OK"));
  EXPECT_TRUE(RespClient(port()).Do({"AUTH", kFirst}).is_text("OK"));
  Replace(file_, absl::StrCat(kSecond, "\n", third, "\n"));
  EXPECT_TRUE(WaitUntil([&] { return RespClient(port()).Do({"AUTH", third}).is_text("OK"); }));
  EXPECT_TRUE(absl::StartsWith(first.Do({"PING"}).text, "BROKEN")) << "its token is gone";
  EXPECT_TRUE(second.Do({"PING"}).is_text("PONG"));
  EXPECT_FALSE(RespClient(port()).Do({"AUTH", kFirst}).is_text("OK"));
}

TEST_F(PeerTokensTest, TheStoresClientShowsItsToken) {
  RedisOptions options = {.seeds = {AddressOf(*server_)}, .password = kSecond};
  EXPECT_EQ(FetchingPeer(options).Fetch(tokens_).fetched_tokens, 5 * kBlockTokens);
  options.password = "";
  FetchingPeer stranger(options, {.blocks = 128}, {.fetch_base = absl::Seconds(2)});
  EXPECT_EQ(stranger.Fetch(tokens_).fetched_tokens, 0u);
}

TEST(PeerTokenFileTest, IsCheckedAtTheStart) {
  const TempDirectory directory;
  const std::string file = directory.path() + "/tokens";
  const auto reason = [&] {
    return ReasonOf(
        PeerServer::Start({.address = {.host = "127.0.0.1"}, .tokens_file = file}).status());
  };
  EXPECT_EQ(reason(), Reason::kInvalidArgument);
  Replace(file, "# none\n");
  EXPECT_EQ(reason(), Reason::kInvalidArgument) << "a file without tokens lets nobody in";
  Replace(file, kFirst);
  EXPECT_EQ(reason(), Reason::kNone);
  chmod(file.c_str(), 0644);
  EXPECT_EQ(reason(), Reason::kInvalidArgument) << "everybody can read it";
}

class PeerTlsTest : public testing::Test {
 protected:
  PeerTlsTest() {
    // An authority, certificates of the server and of a client, and another authority.
    const std::string key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes ";
    const std::string script = absl::StrCat(
        "cd ", folder_, " && exec >log 2>&1 && umask 077 && openssl req -x509 ", key,
        "-keyout ca.key -out ca.crt -subj /CN=ca -days 2 && openssl req -x509 ", key,
        "-keyout other.key -out other.crt -subj /CN=other -days 2 && ",
        "printf subjectAltName=IP:127.0.0.1 >san && for who in server client; do openssl req ", key,
        "-keyout $who.key -out $who.csr -subj /CN=$who && openssl x509 -req -in $who.csr -CA ",
        "ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile san -out $who.crt || exit 1; done");
    EXPECT_EQ(std::system(script.c_str()), 0);
    cache_.Compute(tokens_);
  }
  ServerTls Files() const {
    return {.certificate_file = folder_ + "/server.crt",
            .key_file = folder_ + "/server.key",
            .client_ca_file = folder_ + "/ca.crt"};
  }
  void Start() {
    server_ = StartPeer({.tls = Files(), .login_timeout = absl::Seconds(2)});
    Serve(*server_, cache_);
  }
  RedisOptions Client() const {
    return {.seeds = {AddressOf(*server_)},
            .tls = {.is_on = true,
                    .ca_file = folder_ + "/ca.crt",
                    .certificate_file = folder_ + "/client.crt",
                    .key_file = folder_ + "/client.key"}};
  }
  uint32_t Fetched(const RedisOptions& options, absl::Duration patience = absl::Seconds(2)) {
    FetchingPeer peer(options, {.blocks = 128}, {.fetch_base = patience});
    const uint32_t fetched = peer.Fetch(tokens_).fetched_tokens;
    EXPECT_EQ(peer.cache.Compute(tokens_), fetched) << "the engine checks the bytes";
    return fetched;
  }

  const TempDirectory directory_;
  const std::string folder_ = directory_.path();
  const Tokens tokens_ = TokensOf(1, 60 * kBlockTokens + 1);
  ExchangedCache cache_{{.blocks = 128}};
  std::unique_ptr<PeerServer> server_;
};

TEST_F(PeerTlsTest, TheStoresClientFetchesOverTls) {
  Start();
  EXPECT_EQ(Fetched(Client(), absl::Seconds(20)), 60 * kBlockTokens);
}

TEST_F(PeerTlsTest, OnlyClientsWithACertificateAreLetIn) {
  Start();
  RedisOptions none = Client();
  none.tls.certificate_file = none.tls.key_file = "";
  EXPECT_EQ(Fetched(none), 0u);
  RedisOptions other = Client();
  other.tls.certificate_file = folder_ + "/other.crt";
  other.tls.key_file = folder_ + "/other.key";
  EXPECT_EQ(Fetched(other), 0u);
  RedisOptions distrusting = Client();
  distrusting.tls.ca_file = folder_ + "/other.crt";
  EXPECT_EQ(Fetched(distrusting), 0u);
  RedisOptions plain = Client();
  plain.tls = {};
  EXPECT_EQ(Fetched(plain), 0u);
  EXPECT_GT(server_->stats().failed, 0u);
  EXPECT_EQ(server_->stats().hits, 0u);
  EXPECT_EQ(Fetched(Client(), absl::Seconds(20)), 60 * kBlockTokens);
}

TEST_F(PeerTlsTest, AHandshakeThatStopsIsClosed) {
  Start();
  const RespClient silent(server_->address().port);
  ASSERT_TRUE(WaitUntil([&] { return server_->stats().connections == 1; }));
  EXPECT_TRUE(WaitUntil([&] { return server_->stats().connections == 0; }));
}

TEST_F(PeerTlsTest, TheCertificateCanBeReplaced) {
  Start();
  const auto copy = [&](const std::string& from, const std::string& to) {
    const std::string script = absl::StrCat("cp -p ", folder_, "/", from, " ", folder_,
                                            "/new && mv ", folder_, "/new ", folder_, "/", to);
    ASSERT_EQ(std::system(script.c_str()), 0);
  };
  // A key of another certificate: the earlier files stay in use.
  copy("other.key", "server.key");
  EXPECT_EQ(Fetched(Client(), absl::Seconds(20)), 60 * kBlockTokens);
  copy("other.crt", "server.crt");
  EXPECT_EQ(Fetched(Client()), 0u) << "the client does not trust the new certificate";
}

TEST_F(PeerTlsTest, FilesAreCheckedAtTheStart) {
  const auto fails = [&](const ServerTls& files) {
    return !PeerServer::Start({.address = {.host = "127.0.0.1"}, .tls = files}).ok();
  };
  EXPECT_FALSE(fails(Files()));
  ServerTls files = Files();
  files.key_file = folder_ + "/client.key";
  EXPECT_TRUE(fails(files)) << "the key is not that of the certificate";
  files = Files();
  files.client_ca_file = folder_ + "/nowhere";
  EXPECT_TRUE(fails(files));
  chmod(Files().key_file.c_str(), 0644);
  EXPECT_TRUE(fails(Files())) << "everybody can read the key";
}

}  // namespace
}  // namespace pagoda::server
