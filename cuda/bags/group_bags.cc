#include "cuda/bags/group_bags.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/bags/bags_kernels.h"
#include "cuda/base/transfers.h"
#include "cuda/scan/stable_sort.h"

namespace sok {
namespace {

// Copies single values of a lookup's arrays to the host. Keeps the first error.
class Values {
 public:
  Values(cudaStream_t stream, RoundTrip* round_trip) : stream_(stream), round_trip_(round_trip) {}

  template <typename T>
  T At(const T* device, int64_t i) {
    StatusOr<const T*> value = round_trip_->Fetch(stream_, device + i, 1);
    if (value.ok()) return *value.value();
    if (status_.ok()) status_ = value.status();
    return T();
  }

  const Status& status() const { return status_; }

 private:
  const cudaStream_t stream_;
  RoundTrip* const round_trip_;
  Status status_;
};

int64_t SplitAt(const LookupInput& input, int64_t bag, Values* values) {
  return input.narrow_splits == nullptr ? values->At(input.row_splits, bag)
                                        : values->At(input.narrow_splits, bag);
}

Status ErrorOf(const std::string& variable, const LookupSpec& spec, const LookupInput& input, BagError error,
               int64_t number, Values* values) {
  switch (error) {
    case BagError::kIndex:
      return IndexBeyondBags(variable, number, values->At(input.indices, 2 * number), input.num_bags);
    case BagError::kSplitsBegin:
      return RowSplitsBeginWith(variable, SplitAt(input, 0, values));
    case BagError::kSplitsFall:
      return RowSplitsFall(variable, SplitAt(input, number - 1, values), SplitAt(input, number, values),
                           number);
    case BagError::kSplitsEnd:
      return RowSplitsEndWith(variable, SplitAt(input, number, values), input.num_ids);
    case BagError::kPlaces: {
      const int64_t* const of_ids = spec.layout == IdLayout::kSparse ? input.indices : input.row_splits;
      return WeightsAtOtherPlaces(variable, spec.layout, number, values->At(input.weight_places, number),
                                  values->At(of_ids, number));
    }
    case BagError::kWeight:
      return WeightNotFinite(variable, number, values->At(input.weights, number));
  }
  return Internal("Lookup in embedding variable '", variable, "': unknown error ", static_cast<int>(error));
}

}  // namespace

Status StatusOfBagError(cudaStream_t stream, RoundTrip* round_trip, uint64_t word,
                        Span<const std::string> tables, Span<const LookupSpec> specs,
                        Span<const LookupInput> inputs) {
  if (word == BagErrorWord::kNone) return OkStatus();
  const int l = BagErrorWord::Lookup(word);
  Values values(stream, round_trip);
  const Status error = ErrorOf(tables[specs[l].table], specs[l], inputs[l], BagErrorWord::Error(word),
                               BagErrorWord::Number(word), &values);
  SOK_RETURN_IF_ERROR(values.status());
  return error;
}

// The errors of the inputs of lookups, as text.

// The status of a BagErrorWord: OK for kNone, else the error of cc/lookup/lookup_input.h. Fetches the
// wrong values, one or two, from the inputs, which are on the device, and waits for each.
Status StatusOfBagError(cudaStream_t stream, RoundTrip* round_trip, uint64_t word,
                        Span<const std::string> tables, Span<const LookupSpec> specs,
                        Span<const LookupInput> inputs);

namespace {

constexpr int64_t kMaxIds = std::numeric_limits<int32_t>::max();

int64_t TilesOf(int64_t n) { return (n + kBagTile - 1) / kBagTile; }

bool DropsIds(const LookupSpec& spec) { return spec.weighted && spec.positive_weights_only; }

// Whether bag b may consist of id b alone, for all bags, as far as the host knows.
bool MayBeOneEach(const LookupSpec& spec, const LookupInput& input) {
  return spec.pooled() && !spec.weighted && input.num_bags == input.num_ids;
}

IdLayout LayoutOf(const LookupSpec& spec, const LookupInput& input) {
  return input.narrow_splits == nullptr ? spec.layout : IdLayout::kRagged;
}

// The arrays that kernels need, while they are built on the host.
struct HostArrays {
  std::vector<InputView> lookups;
  std::vector<int64_t> first_id = {0};
  std::vector<int64_t> table_id;
  std::vector<int64_t> id_tiles = {0};
  std::vector<int64_t> split_tiles = {0};
  std::vector<int64_t> first_sorted = {0};
  int64_t num_begins = 0;
  bool drops_ids = false;

  // Appends a lookup to the arrays: its view, without pointers to the device.
  void Add(int number, const LookupSpec& spec, const LookupInput& input, bool sorted, bool has_order) {
    InputView view;
    view.input = input;
    if (!spec.weighted) view.input.weight_places = nullptr;
    view.layout = LayoutOf(spec, input);
    view.weighted = spec.weighted;
    view.drops_ids = DropsIds(spec);
    view.has_order = has_order;
    view.may_be_one_each = MayBeOneEach(spec, input);
    view.number = number;
    view.first_id = first_id.back();
    view.first_bag = num_begins;
    lookups.push_back(view);
    first_id.push_back(first_id.back() + input.num_ids);
    first_sorted.push_back(first_sorted.back() + (sorted ? input.num_ids : 0));
    const bool sparse = view.layout == IdLayout::kSparse;
    id_tiles.push_back(id_tiles.back() + TilesOf(input.num_ids + (sparse ? 1 : 0)));
    const bool ragged = view.layout == IdLayout::kRagged;
    split_tiles.push_back(split_tiles.back() + (ragged ? TilesOf(input.num_bags + 1) : 0));
    if (spec.pooled()) num_begins += input.num_bags + 1;
    drops_ids = drops_ids || view.drops_ids;
  }
};

// The lookups ordered by table, and otherwise in the caller's order.
std::vector<int> NumbersByTable(Span<const LookupSpec> specs) {
  std::vector<int> numbers(specs.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::stable_sort(numbers.begin(), numbers.end(),
                   [&](int a, int b) { return specs[a].table < specs[b].table; });
  return numbers;
}

// Adds the arrays to `upload`, which sets their addresses in `group`.
void AddArrays(const HostArrays& arrays, StagedUpload* upload, GroupView* group) {
  group->num_lookups = static_cast<int>(arrays.lookups.size());
  upload->Add(Span<const InputView>(arrays.lookups), &group->lookups);
  upload->Add(Span<const int64_t>(arrays.first_id), &group->first_id);
  upload->Add(Span<const int64_t>(arrays.table_id), &group->table_id);
  upload->Add(Span<const int64_t>(arrays.id_tiles), &group->id_tiles);
  upload->Add(Span<const int64_t>(arrays.split_tiles), &group->split_tiles);
  upload->Add(Span<const int64_t>(arrays.first_sorted), &group->first_sorted);
}

// The error of a group whose ids and bags do not fit into memory. Names the lookup that has most of them.
Status NoMemory(const BagsInput& input) {
  const auto size = [](const LookupInput& of) {
    return static_cast<uint64_t>(of.num_ids) + static_cast<uint64_t>(of.num_bags);
  };
  const auto largest =
      std::max_element(input.inputs.begin(), input.inputs.end(),
                       [&](const LookupInput& a, const LookupInput& b) { return size(a) < size(b); });
  return NoMemoryForBags(input.tables[input.specs[largest - input.inputs.begin()].table]);
}

// `status`, which names a variable if memory runs out.
Status NamedIfNoMemory(const BagsInput& input, const Status& status) {
  const bool no_memory = status.code() == StatusCode::kResourceExhausted && !input.inputs.empty();
  return no_memory ? NoMemory(input) : status;
}

// Checks that occurrences and bag boundaries can be numbered.
Status CheckSizes(const BagsInput& input) {
  int64_t ids = 0;
  int64_t begins = 0;
  for (int64_t l = 0; l < input.specs.size(); ++l) {
    ids += input.inputs[l].num_ids;
    if (ids > kMaxIds) return TooManyIds(input.tables[input.specs[l].table], ids);
    if (!input.specs[l].pooled()) continue;
    const int64_t bags = input.inputs[l].num_bags;
    begins += std::min(bags, kMaxIds) + 1;
    if (begins > kMaxIds) return NoMemoryForBags(input.tables[input.specs[l].table]);
  }
  return OkStatus();
}

// Resizes `buffer` to `size` elements; frees the old memory first.
template <typename T>
Status Reallocate(cudaStream_t stream, DeviceAllocator* memory, int64_t size, DeviceBuffer<T>* buffer) {
  buffer->Free();
  SOK_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<T>::Allocate(memory, stream, size));
  return OkStatus();
}

// Writes the caller's positions of the `n` ids that are sorted, ordered by lookup and then by bag.
Status SortIds(cudaStream_t stream, DeviceAllocator* scratch, const GroupView& group, int64_t n,
               int64_t num_begins, int32_t* sorted_given) {
  if (n == 0) return OkStatus();
  DeviceBuffer<uint32_t> keys;
  DeviceBuffer<uint32_t> sorted_keys;
  DeviceBuffer<int32_t> given;
  SOK_RETURN_IF_ERROR(Reallocate(stream, scratch, n, &keys));
  SOK_RETURN_IF_ERROR(Reallocate(stream, scratch, n, &sorted_keys));
  SOK_RETURN_IF_ERROR(Reallocate(stream, scratch, n, &given));
  SOK_RETURN_IF_ERROR(WriteSortKeys(stream, group, n, keys.data(), given.data()));
  return StableSort(stream, scratch, n, num_begins, keys.data(), given.data(), sorted_keys.data(),
                    sorted_given);
}

}  // namespace

void GroupBags::Prepare(const BagsInput& input) {
  const size_t num_lookups = input.specs.size();
  numbers_ = NumbersByTable(input.specs);
  lookups_.assign(num_lookups, BagsOfLookup());
  is_sorted_.assign(num_lookups, 0);
  num_ids_ = 0;
  for (size_t l = 0; l < num_lookups; ++l) {
    const LookupSpec& spec = input.specs[l];
    const LookupInput& of = input.inputs[l];
    is_sorted_[l] = !input.sort.empty() && input.sort[l] != 0 && LayoutOf(spec, of) == IdLayout::kSparse;
    BagsOfLookup& lookup = lookups_[l];
    lookup.table = spec.table;
    lookup.pooled = spec.pooled();
    lookup.weighted = spec.weighted;
    lookup.has_order = is_sorted_[l] != 0 || DropsIds(spec);
    lookup.combiner = spec.combiner;
    lookup.num_bags = spec.pooled() ? of.num_bags : of.num_ids;
    lookup.given = of.num_ids;
    num_ids_ += of.num_ids;
  }
}

Status GroupBags::Allocate(cudaStream_t stream, DeviceAllocator* memory, int64_t num_begins) {
  const auto any = [&](bool BagsOfLookup::* has) {
    return std::any_of(lookups_.begin(), lookups_.end(), [&](const BagsOfLookup& l) { return l.*has; });
  };
  SOK_RETURN_IF_ERROR(keys_.Resize(stream, memory, num_ids_));
  SOK_RETURN_IF_ERROR(weights_.Resize(stream, memory, any(&BagsOfLookup::weighted) ? num_ids_ : 0));
  SOK_RETURN_IF_ERROR(order_.Resize(stream, memory, any(&BagsOfLookup::has_order) ? num_ids_ : 0));
  return bag_begins_.Resize(stream, memory, num_begins);
}

Status GroupBags::Enqueue(cudaStream_t stream, DeviceAllocator* memory, DeviceAllocator* scratch,
                          StagedUpload* upload, const BagsInput& input) {
  HostArrays arrays;
  for (const int l : numbers_) {
    arrays.Add(l, input.specs[l], input.inputs[l], is_sorted_[l] != 0, lookups_[l].has_order);
  }
  for (int64_t t = 0; t <= input.tables.size(); ++t) {
    const auto before =
        std::count_if(numbers_.begin(), numbers_.end(), [&](int l) { return input.specs[l].table < t; });
    arrays.table_id.push_back(arrays.first_id[before]);
  }
  SOK_RETURN_IF_ERROR(Allocate(stream, memory, arrays.num_begins));
  DeviceBuffer<int32_t> sorted_given;
  const int64_t num_sorted = arrays.first_sorted.back();
  SOK_RETURN_IF_ERROR(Reallocate(stream, scratch, num_sorted, &sorted_given));
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const int l = numbers_[i];
    InputView& view = arrays.lookups[i];
    if (is_sorted_[l] != 0) view.order = sorted_given.data() + arrays.first_sorted[i];
    if (!lookups_[l].pooled) continue;
    view.bag_begin = bag_begins_.data() + view.first_bag;
    lookups_[l].bag_begin = view.bag_begin;
  }

  GroupView group;
  AddArrays(arrays, upload, &group);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, upload->Send(stream, scratch));
  group.keys = keys_.data();
  group.weights = weights_.data();
  group.order = order_.data();
  group.report = report_;
  SOK_RETURN_IF_ERROR(SortIds(stream, scratch, group, num_sorted, arrays.num_begins, sorted_given.data()));
  return WriteBags(stream, scratch, group,
                   {num_ids_, arrays.id_tiles.back(), arrays.split_tiles.back(), arrays.drops_ids});
}

Status GroupBags::Build(cudaStream_t stream, DeviceAllocator* memory, DeviceAllocator* scratch,
                        StagedUpload* upload, const BagsInput& input, int64_t* report) {
  SOK_RETURN_IF_ERROR(CheckSizes(input));
  Prepare(input);
  report_ = BagsReport(report, static_cast<int>(input.tables.size()), static_cast<int>(input.specs.size()));
  return NamedIfNoMemory(input, Enqueue(stream, memory, scratch, upload, input));
}

Status GroupBags::TakeReport(cudaStream_t stream, RoundTrip* round_trip, const BagsInput& input,
                             const int64_t* report) {
  // Copied, because fetching a wrong value overwrites the round trip's result.
  std::vector<int64_t> words(report, report + report_size(input));
  const BagsReport host(words.data(), report_.num_tables(), report_.num_lookups());
  SOK_RETURN_IF_ERROR(
      StatusOfBagError(stream, round_trip, *host.error(), input.tables, input.specs, input.inputs));
  host_table_begin_.assign(host.table_begin(), host.table_begin() + host.num_tables() + 1);
  needs_sort_ = false;
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const int l = numbers_[i];
    const uint64_t flags = host.flags()[i];
    BagsOfLookup& lookup = lookups_[l];
    lookup.begin = host.lookup_begin()[i];
    lookup.end = host.lookup_begin()[i + 1];
    lookup.unsorted = (flags & kUnsorted) != 0;
    lookup.has_long_bag = (flags & kHasLongBag) != 0;
    lookup.one_each = MayBeOneEach(input.specs[l], input.inputs[l]) && (flags & kNotOneEach) == 0;
    needs_sort_ = needs_sort_ || (lookup.unsorted && is_sorted_[l] == 0);
  }
  return OkStatus();
}

}  // namespace sok
