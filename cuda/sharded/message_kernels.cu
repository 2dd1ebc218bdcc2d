#include <vector>

#include "cc/lookup/divisor.h"
#include "cc/messages/message.h"
#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/sharded/message_kernels.h"

namespace sok {
namespace {

struct EncodedPart {
  EncodedGradients gradients;
  PartPlace place;
};
struct DecodedPart {
  DecodedGradients gradients;
  PartPlace place;
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    EncodeKernel(const __grid_constant__ PartBatch<EncodedPart> batch) {
  AwaitPreviousKernels();
  const EncodedPart& part = PartOfBlock(batch);
  const int64_t i = LaneGroup(part.place).item();
  if (i >= part.place.items) return;
  const float value = part.gradients.values[i];
  part.gradients.encoded[i] =
      part.gradients.format == GradientFormat::kFloat16 ? ToFloat16(value) : ToBfloat16(value);
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    DecodeKernel(const __grid_constant__ PartBatch<DecodedPart> batch) {
  AwaitPreviousKernels();
  const DecodedPart& part = PartOfBlock(batch);
  const int64_t i = LaneGroup(part.place).item();
  if (i >= part.place.items) return;
  const uint16_t encoded = part.gradients.encoded[i];
  part.gradients.values[i] =
      part.gradients.format == GradientFormat::kFloat16 ? FromFloat16(encoded) : FromBfloat16(encoded);
}

}  // namespace

Status EnqueueEncoding(cudaStream_t stream, Span<const EncodedGradients> gradients) {
  PartLauncher<EncodedPart> launcher("EncodeGradients", stream, EncodeKernel);
  for (const EncodedGradients& part : gradients) {
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.count, 0));
  }
  return launcher.Launch();
}

Status EnqueueDecoding(cudaStream_t stream, Span<const DecodedGradients> gradients) {
  PartLauncher<DecodedPart> launcher("DecodeGradients", stream, DecodeKernel);
  for (const DecodedGradients& part : gradients) {
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.count, 0));
  }
  return launcher.Launch();
}

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    DivisionKernel(const float* values, int64_t n, float divisor, float* quotients) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) quotients[i] = values[i] / divisor;
}

}  // namespace

Status EnqueueDivision(cudaStream_t stream, const float* values, int64_t n, float divisor, float* quotients) {
  return Launch("Division", stream, ShapeFor(n), DivisionKernel, values, n, divisor, quotients);
}

namespace {

// The number of elements of a piece that a block copies.
constexpr int64_t kTile = 4 * kThreadsPerBlock;

// Block b copies tile b - tile_begin[p] of piece p, where tile_begin[p] <= b < tile_begin[p + 1].
template <typename T>
__global__ void __launch_bounds__(kThreadsPerBlock)
    CopyPiecesKernel(const CopiedPiece<T>* pieces, const int64_t* tile_begin, int num_pieces) {
  AwaitPreviousKernels();
  const int p = PartOf(tile_begin, num_pieces, static_cast<int64_t>(blockIdx.x));
  const CopiedPiece<T> piece = pieces[p];
  const int64_t first = (blockIdx.x - tile_begin[p]) * kTile;
  const int64_t end = first + kTile < piece.padded ? first + kTile : piece.padded;
  for (int64_t i = first + threadIdx.x; i < end; i += kThreadsPerBlock) {
    piece.to[i] = i < piece.count ? piece.from[i] : T{0};
  }
}

template <typename T>
Status Copy(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
            Span<const CopiedPiece<T>> pieces) {
  std::vector<int64_t> tile_begin = {0};
  for (const CopiedPiece<T>& piece : pieces) {
    tile_begin.push_back(tile_begin.back() + (piece.padded + kTile - 1) / kTile);
  }
  const int64_t tiles = tile_begin.back();
  if (tiles == 0) return OkStatus();
  const CopiedPiece<T>* device_pieces = nullptr;
  const int64_t* device_begin = nullptr;
  upload->Add(pieces, &device_pieces);
  upload->Add(Span<const int64_t>(tile_begin), &device_begin);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, upload->Send(stream, scratch));
  return Launch("CopyPieces", stream, {tiles, kThreadsPerBlock, 0}, CopyPiecesKernel<T>, device_pieces,
                device_begin, static_cast<int>(pieces.size()));
}

}  // namespace

Status CopyPieces(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<const CopiedWords> pieces) {
  return Copy(stream, scratch, upload, pieces);
}

Status CopyPieces(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<const CopiedNumbers> pieces) {
  return Copy(stream, scratch, upload, pieces);
}

namespace {

struct DividedPart {
  DividedSums sums;
  PartPlace place;
};
struct GradientPart {
  GradientsOfSums gradients;
  PartPlace place;
};

// One group of lanes per bag.
__global__ void __launch_bounds__(kThreadsPerBlock)
    DivideKernel(const __grid_constant__ PartBatch<DividedPart> batch) {
  AwaitPreviousKernels();
  const DividedPart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const DividedSums& sums = part.sums;
  const int64_t ids = sums.bag_begin[group.item() + 1] - sums.bag_begin[group.item()];
  const float divisor = UnweightedDivisor(sums.combiner, ids);
  if (divisor == 0.0f || divisor == 1.0f) return;
  float* const sum = sums.output.data + group.item() * sums.output.stride;
  const bool multiplies = MultipliesByInverse(ids);
  const float inverse = 1.0f / divisor;
  for (int64_t c = group.lane(); c < sums.dim; c += group.lanes()) {
    sum[c] = multiplies ? sum[c] * inverse : sum[c] / divisor;
  }
}

// One group of lanes per sum.
__global__ void __launch_bounds__(kThreadsPerBlock)
    GradientKernel(const __grid_constant__ PartBatch<GradientPart> batch) {
  AwaitPreviousKernels();
  const GradientPart& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  if (group.item() >= part.place.items) return;
  const GradientsOfSums& in = part.gradients;
  const int64_t bag = in.bags[group.item()];
  const float scale = UnweightedScale(in.combiner, in.bag_begin[bag + 1] - in.bag_begin[bag]);
  const float* const gradient = in.gradient.data + bag * in.gradient.stride;
  float* const out = in.out + group.item() * in.dim;
  for (int64_t c = group.lane(); c < in.dim; c += group.lanes()) out[c] = scale * gradient[c];
}

}  // namespace

Status EnqueueDivisions(cudaStream_t stream, Span<const DividedSums> sums) {
  PartLauncher<DividedPart> launcher("DivideSums", stream, DivideKernel);
  for (const DividedSums& part : sums) {
    if (part.combiner == Combiner::kSum) continue;
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.bags, LanesLog2(part.dim, 1)));
  }
  return launcher.Launch();
}

Status EnqueueSumGradients(cudaStream_t stream, Span<const GradientsOfSums> gradients) {
  PartLauncher<GradientPart> launcher("SumGradients", stream, GradientKernel);
  for (const GradientsOfSums& part : gradients) {
    SOK_RETURN_IF_ERROR(launcher.Add({part, {}}, part.sums, LanesLog2(part.dim, 1)));
  }
  return launcher.Launch();
}

}  // namespace sok
