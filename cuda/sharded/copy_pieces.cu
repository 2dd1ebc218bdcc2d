#include <vector>

#include "cuda/base/launch.h"
#include "cuda/sharded/copy_pieces.h"

namespace sok {
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
  const StatusOr<DeviceBuffer<char>> uploaded = upload->Send(stream, scratch);
  SOK_RETURN_IF_ERROR(uploaded.status());
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

}  // namespace sok
