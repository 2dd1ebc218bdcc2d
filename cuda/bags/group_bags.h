// The bags of a group's lookups on the device.
#ifndef SOK_CUDA_BAGS_GROUP_BAGS_H_
#define SOK_CUDA_BAGS_GROUP_BAGS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/bags/bags_kernels.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"

namespace sok {

// What a group looks up in one step. The inputs' arrays are on the device.
struct BagsInput {
  Span<const std::string> tables;  // names of the embedding variables
  Span<const LookupSpec> specs;
  Span<const LookupInput> inputs;  // inputs[l] belongs to specs[l]
  // Whether to sort the ids of a lookup with kSparse ids by bag; empty: sorts none. The indices of a lookup
  // that is not sorted must be in order already. Sorting those too costs time and changes nothing.
  Span<const uint8_t> sort;
};

// One lookup, as in cc/cpu/group/lookup_passes.h. Its arrays are those of the group, indexed by the group's
// occurrences.
struct BagsOfLookup {
  int table = 0;
  bool pooled = false;
  bool weighted = false;
  bool has_order = false;
  Combiner combiner = Combiner::kSum;
  int64_t num_bags = 0;  // if nothing is pooled, the number of ids
  int64_t given = 0;     // ids
  // [num_bags + 1] on the device: bag b holds the group's occurrences [bag_begin[b], bag_begin[b + 1]). Null
  // if nothing is pooled.
  const int32_t* bag_begin = nullptr;

  // Set by TakeReport: the lookup's occurrences are [begin, end) of the group's.
  int64_t begin = 0;
  int64_t end = 0;
  bool unsorted = false;      // the indices of its ids are not in order
  bool one_each = false;      // pooled without weights, and bag b consists of the caller's id b alone
  bool has_long_bag = false;  // some bag may have kIdsOfLongBag ids or more, with those that are left out
};

// All lookups of a group in one step. The group's occurrences are the ids that are in bags: ordered by table,
// then by lookup, then by bag, then in the caller's order. One call at a time.
class GroupBags {
 public:
  // Enqueues the work that makes the bags on the stream: checks the inputs, and writes the arrays and
  // `report`, which is report_size() words on the device. The arrays come from `memory` and live as long as
  // this object. Later builds, on the same stream, use their memory again. What only the work needs comes
  // from `scratch`.
  //
  // InvalidArgument for more than 2^31 - 1 ids; ResourceExhausted, which names a variable, if memory runs
  // out.
  Status Build(cudaStream_t stream, DeviceAllocator* memory, DeviceAllocator* scratch, StagedUpload* upload,
               const BagsInput& input, int64_t* report);

  static int64_t report_size(const BagsInput& input) {
    return BagsReport::SizeFor(static_cast<int>(input.tables.size()), static_cast<int>(input.specs.size()));
  }

  // Takes the report, which the host has fetched. Returns the error of the first lookup that has one, with
  // the message of cc/cpu/group/lookup_bags.cc: InvalidArgument that names the variable and the value.
  // Fetches the value, so it waits for the device if there is an error, and only then. `input` is that of
  // Build, with its arrays still valid.
  Status TakeReport(cudaStream_t stream, RoundTrip* round_trip, const BagsInput& input,
                    const int64_t* report);

  // After TakeReport: whether some lookup had to be sorted and was not. The arrays must then not be used: the
  // caller builds again, with `sort` set for each lookup that is `unsorted`.
  bool needs_sort() const { return needs_sort_; }

  const std::vector<BagsOfLookup>& lookups() const { return lookups_; }

  // The number of ids from the caller: at least the number of occurrences, and the size of the arrays below.
  int64_t num_ids() const { return num_ids_; }
  // [num_tables + 1] in the report on the device: table t has the occurrences [table_begin[t], table_begin[t
  // + 1]).
  const int64_t* table_begin() const { return report_.table_begin(); }
  // The same on the host, set by TakeReport.
  const std::vector<int64_t>& host_table_begin() const { return host_table_begin_; }

  // One entry per occurrence, on the device.
  const int64_t* keys() const { return keys_.data(); }
  const float* weights() const { return weights_.data(); }  // of lookups that are `weighted`
  // The caller's position of the id, for lookups with `has_order`. For others, that is the occurrence's own
  // number in its lookup.
  const int32_t* order() const { return order_.data(); }

 private:
  void Prepare(const BagsInput& input);
  Status Allocate(cudaStream_t stream, DeviceAllocator* memory, int64_t num_begins);
  Status Enqueue(cudaStream_t stream, DeviceAllocator* memory, DeviceAllocator* scratch, StagedUpload* upload,
                 const BagsInput& input);

  std::vector<BagsOfLookup> lookups_;  // in the caller's order
  std::vector<int> numbers_;           // the lookups in the order of their occurrences
  int64_t num_ids_ = 0;
  bool needs_sort_ = false;
  BagsReport report_;  // on the device
  std::vector<int64_t> host_table_begin_;
  std::vector<uint8_t> is_sorted_;  // whether Build sorts a lookup

  ReusableArray<int64_t> keys_;
  ReusableArray<float> weights_;
  ReusableArray<int32_t> order_;
  ReusableArray<int32_t> bag_begins_;
};

}  // namespace sok

#endif  // SOK_CUDA_BAGS_GROUP_BAGS_H_
