#include "cuda/bags/bags_errors.h"

#include "cc/group/lookup_errors.h"
#include "cuda/bags/bags_report.h"

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

Status ErrorOf(const std::string& variable, const LookupSpec& spec, const LookupInput& input, BagError error,
               int64_t number, Values* values) {
  switch (error) {
    case BagError::kIndex:
      return IndexBeyondBags(variable, number, values->At(input.indices, 2 * number), input.num_bags);
    case BagError::kSplitsBegin:
      return RowSplitsBeginWith(variable, values->At(input.row_splits, 0));
    case BagError::kSplitsFall:
      return RowSplitsFall(variable, values->At(input.row_splits, number - 1),
                           values->At(input.row_splits, number), number);
    case BagError::kSplitsEnd:
      return RowSplitsEndWith(variable, values->At(input.row_splits, number), input.num_ids);
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

}  // namespace sok
