#include "server/cache/brought_caches.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "server/config/config.h"

namespace pagoda::server {
namespace {

using Json = nlohmann::ordered_json;

// More than kMaxCaches caches with kMaxBroughtLayers layer groups each can take.
constexpr size_t kMaxFileBytes = size_t{1} << 30;

absl::Status SystemError(const std::string& what) {
  const int error = errno;
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(what, ": ", std::strerror(error)));
}

absl::Status Damaged(const std::string& path, const std::string& what) {
  return MakeError(Reason::kInvalidArgument, absl::StrCat(path, " is no list of caches: ", what));
}

absl::Status CheckOwn(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError(path);
  const bool own = S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1 &&
                   (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (own) return absl::OkStatus();
  return MakeError(Reason::kPermissionDenied,
                   absl::StrCat(path, " is not a regular file that only this user can write"));
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text;
  std::array<char, 1 << 16> piece;
  while (true) {
    const ssize_t size = read(fd, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return SystemError(path);
    if (size == 0) return text;
    text.append(piece.data(), static_cast<size_t>(size));
    if (text.size() > kMaxFileBytes) return Damaged(path, "it is too large");
  }
}

absl::Status WriteAll(int fd, const std::string& path, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t size = write(fd, text.data() + written, text.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return SystemError(path);
    written += static_cast<size_t>(size);
  }
  return fsync(fd) == 0 ? absl::OkStatus() : SystemError(path);
}

absl::StatusOr<Json> CallToJson(const OpenCacheCall& call) {
  v1::OpenCacheRequest proto;
  OpenCacheToProto(call, &proto);
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(proto, &text);
  if (!status.ok()) return absl::InternalError(status.ToString());
  return Json::parse(text);
}

absl::StatusOr<OpenCacheCall> CallFromJson(const Json& json) {
  v1::OpenCacheRequest proto;
  const auto status = google::protobuf::util::JsonStringToMessage(json.dump(), &proto);
  if (!status.ok()) return absl::InvalidArgumentError(status.ToString());
  return OpenCacheFromProto(proto);
}

}  // namespace

absl::StatusOr<BroughtCaches> BroughtCachesFile::Read() const {
  const FileDescriptor fd(open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return BroughtCaches{};
  if (!fd.valid()) return SystemError(path_);
  if (absl::Status status = CheckOwn(fd.get(), path_); !status.ok()) return status;
  const absl::StatusOr<std::string> text = ReadAll(fd.get(), path_);
  if (!text.ok()) return text.status();
  BroughtCaches found;
  try {
    const Json json = Json::parse(*text);
    found.next_number = json.at("next_number").get<uint32_t>();
    for (const Json& one : json.at("caches")) {
      absl::StatusOr<OpenCacheCall> call = CallFromJson(one.at("cache"));
      if (!call.ok()) return Damaged(path_, std::string(call.status().message()));
      found.caches.push_back({.number = one.at("number").get<uint32_t>(),
                              .tenant = one.at("tenant").get<std::string>(),
                              .call = *std::move(call)});
    }
  } catch (const Json::exception& error) {
    return Damaged(path_, error.what());
  }
  return found;
}

absl::Status BroughtCachesFile::Write(const BroughtCaches& caches) const {
  Json list = Json::array();
  for (const BroughtCache& cache : caches.caches) {
    absl::StatusOr<Json> call = CallToJson(cache.call);
    if (!call.ok()) return call.status();
    list.push_back(
        {{"number", cache.number}, {"tenant", cache.tenant}, {"cache", *std::move(call)}});
  }
  const Json all = {{"next_number", caches.next_number}, {"caches", std::move(list)}};
  const std::string fresh = absl::StrCat(path_, ".new");
  unlink(fresh.c_str());
  const FileDescriptor fd(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return SystemError(fresh);
  if (absl::Status status = WriteAll(fd.get(), fresh, all.dump(1)); !status.ok()) return status;
  return rename(fresh.c_str(), path_.c_str()) == 0 ? absl::OkStatus() : SystemError(path_);
}

}  // namespace pagoda::server
