#include "cc/optimizers/optimizer_state.h"

#include "cc/base/hash.h"

namespace sok {
namespace {

constexpr std::string_view kMagic = "SOKO";
constexpr uint32_t kVersion = 1;
constexpr size_t kNameAt = 20;  // after magic, version, steps and the name's length
constexpr size_t kChecksumSize = 8;

void AppendInteger(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint64_t ReadInteger(std::string_view bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)])) << (8 * i);
  }
  return value;
}

uint64_t Checksum(std::string_view bytes) { return Fingerprint64(bytes.data(), bytes.size()); }

}  // namespace

std::string EncodeOptimizerState(const OptimizerState& state) {
  std::string bytes(kMagic);
  AppendInteger(kVersion, 4, &bytes);
  AppendInteger(static_cast<uint64_t>(state.steps), 8, &bytes);
  AppendInteger(state.name.size(), 4, &bytes);
  bytes += state.name;
  AppendInteger(Checksum(bytes), 8, &bytes);
  return bytes;
}

StatusOr<OptimizerState> DecodeOptimizerState(std::string_view bytes) {
  if (bytes.size() < kNameAt + kChecksumSize || bytes.substr(0, 4) != kMagic) {
    return DataLoss("Not the state of an optimizer: ", bytes.size(), " bytes without the expected header");
  }
  const size_t checksum_at = bytes.size() - kChecksumSize;
  if (ReadInteger(bytes, checksum_at, 8) != Checksum(bytes.substr(0, checksum_at))) {
    return DataLoss("The state of an optimizer is damaged: its checksum does not match");
  }
  const uint64_t version = ReadInteger(bytes, 4, 4);
  if (version != kVersion) return DataLoss("Optimizer state of unknown format version ", version);
  const uint64_t steps = ReadInteger(bytes, 8, 8);
  if (steps > INT64_MAX || ReadInteger(bytes, 16, 4) != checksum_at - kNameAt) {
    return DataLoss("The state of an optimizer is inconsistent: ", steps, " steps, a name of ",
                    ReadInteger(bytes, 16, 4), " bytes in ", bytes.size());
  }
  OptimizerState state;
  state.name = bytes.substr(kNameAt, checksum_at - kNameAt);
  state.steps = static_cast<int64_t>(steps);
  return state;
}

}  // namespace sok
