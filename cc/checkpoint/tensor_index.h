// The index of a TensorFlow checkpoint: which tensors it has, and where their bytes are in its data files.
//
// A checkpoint with the prefix P is the file P.index and data files P.data-00000-of-00002, ... TensorFlow
// calls the format a tensor bundle.
#ifndef SOK_CC_CHECKPOINT_TENSOR_INDEX_H_
#define SOK_CC_CHECKPOINT_TENSOR_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"

namespace sok {

constexpr char kStringDtype[] = "string";

// A slice of a partitioned variable: where it begins in each dimension, and its length, which is kWhole for
// all of the dimension.
struct TensorSlice {
  static constexpr int64_t kWhole = -1;
  struct Extent {
    int64_t start = 0;
    int64_t length = kWhole;
  };
  std::vector<Extent> extents;
};

// The key of a slice's own entry.
std::string SliceEntry(const std::string& name, const TensorSlice& slice);

// Where a tensor is, and its type.
struct TensorPlace {
  // In NumPy's notation for numbers ("<f4", "|u1", "<f2"), "bfloat16" or kStringDtype; empty for TensorFlow's
  // other types.
  std::string dtype;
  std::vector<int64_t> shape;
  int shard = 0;        // the number of the data file
  int64_t offset = 0;   // in it
  int64_t bytes = 0;    // of the tensor there
  uint32_t crc32c = 0;  // of these bytes, not masked; for strings see EncodeStringTensor
  // Of a partitioned variable, whose slices have places of their own.
  std::vector<TensorSlice> slices;
};

struct TensorIndex {
  int shards = 1;  // the number in the names of data files; not all of them need to exist
  // By the tensors' names, as ParseTensorPlace reads them.
  std::map<std::string, std::string> entries;
};

std::string EncodeTensorPlace(const TensorPlace& place);
// DataLoss, which names `path` and `name`, if it is not an entry or its numbers are impossible.
StatusOr<TensorPlace> ParseTensorPlace(std::string_view entry, const std::string& path,
                                       const std::string& name);
// The entry of the same tensor in another place; everything else in it is kept.
std::string MovedTensorPlace(std::string_view entry, int shard, int64_t offset);

// The contents of P.index. Its text is the same for the same index.
std::string EncodeTensorIndex(const TensorIndex& index);
// DataLoss, which names `path`, for anything else.
StatusOr<TensorIndex> ParseTensorIndex(std::string_view bytes, const std::string& path);

// The most bytes of an index: 1 GiB.
constexpr int64_t kMaxIndexBytes = int64_t{1} << 30;

std::string IndexPath(const std::string& prefix);
std::string DataPath(const std::string& prefix, int shard, int shards);

// The bytes of a scalar string tensor in a data file: its length, a checksum, and the string.
std::string EncodeStringTensor(std::string_view text);
// The string in such bytes. False if they are damaged or do not have the checksum of their place.
bool ParseStringTensor(std::string_view bytes, uint32_t crc32c, std::string* text);
// The checksum of its place, which is computed in another way than that of numbers.
uint32_t StringTensorCrc32c(std::string_view text);

// The file of strings by key that TensorFlow's checkpoints have as their index. It is LevelDB's table file:
// blocks of entries in the order of their keys, an index of the blocks, and a footer.
std::string EncodeSortedTable(const std::map<std::string, std::string>& entries);

// Reads such a file. DataLoss, which names `path`, if it is not one, a checksum does not match, keys do not
// increase, or a block is compressed, which TensorFlow's writers have not done since 2017.
StatusOr<std::map<std::string, std::string>> ParseSortedTable(std::string_view bytes,
                                                              const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TENSOR_INDEX_H_
