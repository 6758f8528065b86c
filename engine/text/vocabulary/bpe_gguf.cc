// Byte pair encoding with the vocabulary of a GGUF file.
#include <memory>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/vocabulary/bpe.h"
#include "engine/text/vocabulary/bpe_merger.h"

namespace pagoda {

std::unique_ptr<Bpe> Bpe::FromGguf(TokenTable tokens, const Gguf& gguf) {
  auto bpe = absl::WrapUnique(new Bpe(std::move(tokens)));
  bpe->has_pieces_ = true;
  bpe->ignore_merges_ = gguf.ignore_merges;
  for (int byte = 0; byte < 256; ++byte) {
    const char ascii = static_cast<char>(byte);
    bpe->bytes_.push_back(gguf.bytes == Gguf::Bytes::kHex
                              ? bpe->tokens_.Find(absl::StrFormat("<0x%02X>", byte))
                          : byte < 0x80 ? bpe->tokens_.Find(absl::string_view(&ascii, 1))
                                        : std::nullopt);
  }
  bpe->merges_.reserve(gguf.merges.size());
  std::string both;
  uint32_t rank = 0;
  for (const absl::string_view merge : gguf.merges) {
    const size_t space = merge.find(' ', 1);
    ++rank;
    if (space == absl::string_view::npos) continue;
    const absl::string_view left = merge.substr(0, space);
    const absl::string_view right = merge.substr(space + 1);
    both.assign(left.data(), left.size()).append(right.data(), right.size());
    // The first of equal pairs counts.
    bpe->merges_.try_emplace({bpe->Piece(left), bpe->Piece(right)}, Merge{rank, bpe->Piece(both)});
  }
  return bpe;
}

std::optional<TokenId> Bpe::FindPiece(absl::string_view text) const {
  if (const std::optional<TokenId> token = tokens_.Find(text)) return token;
  const auto piece = piece_ids_.find(text);
  if (piece == piece_ids_.end()) return std::nullopt;
  return piece->second;
}

TokenId Bpe::Piece(absl::string_view text) {
  if (const std::optional<TokenId> known = FindPiece(text)) return *known;
  const auto id = static_cast<TokenId>(tokens_.size() + pieces_.size());
  pieces_.emplace_back(text);
  piece_ids_.emplace(text, id);
  return id;
}

void Bpe::AddTokensOf(absl::string_view piece, std::vector<TokenId>& out) const {
  for (const char byte : piece) {
    const std::optional<TokenId> token = bytes_[static_cast<uint8_t>(byte)];
    if (token.has_value()) out.push_back(*token);
  }
}

void Bpe::EncodePieces(absl::string_view word, std::vector<TokenId>& out) const {
  std::vector<TokenId> run;  // Characters that can merge.
  std::vector<TokenId> merged;
  const auto end_run = [&] {
    merged.clear();
    Merger(*this, run).Run(merged);
    run.clear();
    for (const TokenId id : merged) {
      if (id < tokens_.size()) {
        out.push_back(id);
      } else {
        AddTokensOf(pieces_[id - tokens_.size()], out);
      }
    }
  };
  while (!word.empty()) {
    const absl::string_view character = word.substr(0, ReadUtf8(word).size);
    word.remove_prefix(character.size());
    if (const std::optional<TokenId> id = FindPiece(character)) {
      run.push_back(*id);
      continue;
    }
    // It merges with nothing, and keeps its neighbours apart.
    end_run();
    AddTokensOf(character, out);
  }
  end_run();
}

}  // namespace pagoda
