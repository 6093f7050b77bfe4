// SPDX-License-Identifier: Apache-2.0
//
// Zstd frames that others have written, of any size: what their header says, and decoding in pieces
// where the whole content would be too much memory. The rules are those of docs/format.md,
// section 5.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "codec/block_codec.h"
#include "segue/status.h"

namespace segue {

// Looks at the frame's header without decoding: `source` must be exactly one frame of the kind,
// window and content size (`size`, where it states one) that the format allows.
Status CheckZstdFrame(ByteSpan source, std::uint64_t size, ZstdChecksum checksum);

// What the frame states; nothing where it states nothing or has no readable header.
std::optional<std::uint64_t> ZstdContentSize(ByteSpan source);

// Decodes one frame piece by piece. Holds a context and a buffer for a piece. Not thread-safe.
class ZstdPieceDecoder {
 public:
  ZstdPieceDecoder();
  ~ZstdPieceDecoder();
  ZstdPieceDecoder(ZstdPieceDecoder&&) noexcept;
  ZstdPieceDecoder& operator=(ZstdPieceDecoder&&) noexcept;

  // Begins with a frame that decodes to exactly `size` bytes; its checksum may be absent. `source`
  // stays until the end.
  Status Start(ByteSpan source, std::uint64_t size);
  // The next bytes of the content, valid until the next call; empty after the last one. Where the
  // frame turns out to be broken or of another size, what was given before is of no use.
  Result<ByteSpan> Next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace segue
