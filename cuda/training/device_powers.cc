#include "cuda/training/device_powers.h"

#include <utility>

namespace sok {

StatusOr<DevicePowers> DevicePowers::Send(cudaStream_t stream, DeviceAllocator* memory, StagedUpload* upload,
                                          Span<const Powers> host) {
  DevicePowers powers;
  powers.powers_.assign(host.begin(), host.end());
  for (int64_t k = 0; k < host.size(); ++k) {
    Powers* const table = &powers.powers_[static_cast<size_t>(k)];
    upload->Add(Span<const double>(host[k].low, Powers::kRow), &table->low);
    upload->Add(Span<const double>(host[k].high, Powers::kRow), &table->high);
  }
  StatusOr<DeviceBuffer<char>> sent = upload->Send(stream, memory);
  if (!sent.ok()) return sent.status();
  powers.memory_ = std::move(sent.value());
  return StatusOr<DevicePowers>(std::move(powers));
}

}  // namespace sok
