// The kernels of lookups in ordinary variables: the distinct rows to read, and outputs of rows that were
// read.
#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/base/status.h"
#include "cc/cpu/dense_tables/combine_rows.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

Span<const int64_t> AsSpan(const tf::Tensor& tensor) {
  return {tensor.flat<int64_t>().data(), tensor.NumElements()};
}

// Which inputs read each of `units` units, in rising order. Error: an attribute is out of range.
tf::Status InputsOfUnits(const std::vector<int64_t>& unit_of, int units, int inputs,
                         std::vector<std::vector<int>>* inputs_of) {
  inputs_of->assign(units, {});
  if (static_cast<int>(unit_of.size()) != inputs) {
    return tf::errors::InvalidArgument("unit_of has ", unit_of.size(), " values for ", inputs, " inputs");
  }
  for (int input = 0; input < inputs; ++input) {
    if (unit_of[input] < 0 || unit_of[input] >= units) {
      return tf::errors::InvalidArgument("unit_of[", input, "] is ", unit_of[input], ", not in [0, ", units,
                                         ")");
    }
    (*inputs_of)[unit_of[input]].push_back(input);
  }
  return tf::Status();
}

class MergeIdsOp : public tf::OpKernel {
 public:
  explicit MergeIdsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    std::vector<int64_t> unit_of, features, sizes;
    OP_REQUIRES_OK(construction, construction->GetAttr("unit_of", &unit_of));
    OP_REQUIRES_OK(construction, construction->GetAttr("bases", &bases_));
    OP_REQUIRES_OK(construction, construction->GetAttr("features", &features));
    OP_REQUIRES_OK(construction, construction->GetAttr("sizes", &sizes));
    int units = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("units", &units));
    const int inputs = construction->num_inputs();
    OP_REQUIRES_OK(construction, InputsOfUnits(unit_of, units, inputs, &inputs_of_));
    const bool fits =
        static_cast<int>(bases_.size()) == inputs && static_cast<int>(features.size()) == inputs &&
        std::all_of(features.begin(), features.end(), [](int64_t n) { return n >= 1; }) &&
        std::accumulate(features.begin(), features.end(), int64_t{0}) == static_cast<int64_t>(sizes.size());
    OP_REQUIRES(construction, fits,
                tf::errors::InvalidArgument("bases, features and sizes do not fit ", inputs, " inputs"));
    auto next = sizes.begin();
    for (const int64_t count : features) {
      sizes_.emplace_back(next, next + count);
      next += count;
    }
    ends_.resize(units);
    for (int unit = 0; unit < units; ++unit) {
      for (const int input : inputs_of_[unit]) {
        ends_[unit] = std::max(ends_[unit], KeysEnd(sizes_[input], bases_[input]));
      }
    }
  }

  void Compute(tf::OpKernelContext* context) override {
    const int units = static_cast<int>(inputs_of_.size());
    auto scratch = scratch_.Take();
    // The first input with a bad id, and the id.
    int bad_input = context->num_inputs();
    int64_t bad_id = 0;
    for (int unit = 0; unit < units; ++unit) {
      const int64_t ids = CountIds(context, unit);
      scratch->merge.keys.resize(ids);
      int64_t begin = 0;
      for (const int input : inputs_of_[unit]) {
        const Span<const int64_t> of_input = AsSpan(context->input(input));
        const Span<int64_t> keys(scratch->merge.keys.data() + begin, of_input.size());
        int64_t worst = 0;
        if (!MakeKeys({of_input, sizes_[input], bases_[input]}, keys, &worst) && input < bad_input) {
          bad_input = input;
          bad_id = worst;
        }
        begin += of_input.size();
      }
      OP_REQUIRES_OK(context, Merge(context, unit, scratch.get()));
    }
    tf::Tensor* finding = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(2 * units, tf::TensorShape({3}), &finding));
    const bool is_bad = bad_input < context->num_inputs();
    finding->vec<int64_t>()(0) = is_bad ? 1 : 0;
    finding->vec<int64_t>()(1) = is_bad ? bad_input : 0;
    finding->vec<int64_t>()(2) = bad_id;
  }

 private:
  struct Scratch {
    MergeIdsScratch merge;
    std::vector<int64_t> distinct;
  };

  int64_t CountIds(tf::OpKernelContext* context, int unit) const {
    int64_t ids = 0;
    for (const int input : inputs_of_[unit]) ids += context->input(input).NumElements();
    return ids;
  }

  tf::Status Merge(tf::OpKernelContext* context, int unit, Scratch* scratch) const {
    const int units = static_cast<int>(inputs_of_.size());
    const int64_t ids = static_cast<int64_t>(scratch->merge.keys.size());
    tf::Tensor* places = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(units + unit, tf::TensorShape({ids}), &places));
    TfExecutor executor(context);
    TF_RETURN_IF_ERROR(ToTf(MergeKeys(executor, &scratch->merge, ends_[unit], &scratch->distinct,
                                      {places->flat<int32_t>().data(), ids})));
    const int64_t count = static_cast<int64_t>(scratch->distinct.size());
    tf::Tensor* distinct = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(unit, tf::TensorShape({count}), &distinct));
    std::copy(scratch->distinct.begin(), scratch->distinct.end(), distinct->flat<int64_t>().data());
    return tf::Status();
  }

  std::vector<std::vector<int>> inputs_of_;
  std::vector<int64_t> bases_;
  std::vector<std::vector<int64_t>> sizes_;
  std::vector<int64_t> ends_;  // for each unit, one more than its largest key can be
  // Steps of one session may overlap.
  ObjectPool<Scratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokMergeIds").Device(tf::DEVICE_CPU), MergeIdsOp);

// What the kernels of both directions have in common: the inputs, their places, and their bags.
class CombineKernel : public tf::OpKernel {
 public:
  explicit CombineKernel(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    std::vector<int64_t> unit_of;
    OP_REQUIRES_OK(construction, construction->GetAttr("units", &units_));
    OP_REQUIRES_OK(construction, construction->GetAttr("inputs", &inputs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("unit_of", &unit_of));
    OP_REQUIRES_OK(construction, construction->GetAttr("combiners", &combiners_));
    OP_REQUIRES_OK(construction, construction->GetAttr("kinds", &kinds_));
    OP_REQUIRES_OK(construction, InputsOfUnits(unit_of, units_, inputs_, &inputs_of_));
    OP_REQUIRES(construction,
                static_cast<int>(combiners_.size()) == units_ && static_cast<int>(kinds_.size()) == inputs_,
                tf::errors::InvalidArgument("combiners and kinds do not fit ", units_, " units and ", inputs_,
                                            " inputs"));
  }

 protected:
  // What a unit's inputs read: `places` has those of all of them, in their order.
  struct Unit {
    int64_t num_rows;
    int64_t dim;
    Span<const int32_t> places;
    std::vector<InputBags> bags;
  };

  // Inputs of both ops begin with `rows`, `places` and `bags`.
  tf::Status Read(tf::OpKernelContext* context, int unit, Unit* read) const {
    const tf::Tensor& rows = context->input(unit);
    const tf::Tensor& places = context->input(units_ + unit);
    if (rows.dims() != 2 || places.dims() != 1) {
      return tf::errors::InvalidArgument("Rows and places have the shapes ", rows.shape().DebugString(),
                                         " and ", places.shape().DebugString(), ", not [u, d] and [n]");
    }
    read->num_rows = rows.dim_size(0);
    read->dim = rows.dim_size(1);
    read->places = {places.flat<int32_t>().data(), places.NumElements()};
    for (const int32_t place : read->places) {
      if (place < 0 || place >= read->num_rows) {
        return tf::errors::InvalidArgument("Place ", place, " is not in [0, ", read->num_rows, ")");
      }
    }
    int64_t occurrences = 0;
    for (const int input : inputs_of_[unit]) {
      auto bags = BagsOf(context->input(2 * units_ + input), combiners_[unit], kinds_[input]);
      if (!bags.ok()) {
        return ToTf(InvalidArgument("Input ", input, ": ", bags.status().message()));
      }
      occurrences += bags.value().occurrences;
      read->bags.push_back(std::move(bags.value()));
    }
    if (occurrences != read->places.size()) {
      return tf::errors::InvalidArgument("There are ", read->places.size(), " places of ", occurrences,
                                         " ids");
    }
    return tf::Status();
  }

  int units_ = 0;
  int inputs_ = 0;
  std::vector<std::vector<int>> inputs_of_;

 private:
  static StatusOr<InputBags> BagsOf(const tf::Tensor& tensor, const std::string& combiner,
                                    const std::string& kind) {
    const Span<const int64_t> words = AsSpan(tensor);
    const Combiner how = combiner == "mean" ? Combiner::kMean : Combiner::kSum;
    try {
      if (kind == "fixed") return FixedBags(words, how, /*pools=*/combiner != "none");
      if (kind == "splits") return SplitBags(words, how, /*pools=*/combiner != "none");
      if (words.empty()) return InvalidArgument("the number of bags is missing");
      return NumberedBags(words[0], words.subspan(1, words.size() - 1), how);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("cannot allocate memory for its bags");
    } catch (const std::length_error&) {
      return ResourceExhausted("cannot allocate memory for its bags");
    }
  }

  std::vector<std::string> combiners_;
  std::vector<std::string> kinds_;
};

class CombineRowsOp : public CombineKernel {
 public:
  using CombineKernel::CombineKernel;

  void Compute(tf::OpKernelContext* context) override {
    TfExecutor executor(context);
    std::vector<const float*> rows;
    for (int unit = 0; unit < units_; ++unit) {
      Unit read;
      OP_REQUIRES_OK(context, Read(context, unit, &read));
      rows.resize(read.num_rows);
      const float* const first = context->input(unit).flat<float>().data();
      for (int64_t r = 0; r < read.num_rows; ++r) rows[r] = first + r * read.dim;
      int64_t begin = 0;
      for (size_t i = 0; i < read.bags.size(); ++i) {
        const InputBags& bags = read.bags[i];
        tf::Tensor* output = nullptr;
        OP_REQUIRES_OK(context,
                       context->allocate_output(inputs_of_[unit][i],
                                                tf::TensorShape({bags.outputs(), read.dim}), &output));
        CombineRows(executor, rows, read.places.subspan(begin, bags.occurrences), bags, read.dim,
                    output->flat<float>().data());
        begin += bags.occurrences;
      }
    }
  }
};
REGISTER_KERNEL_BUILDER(Name("SokCombineRows").Device(tf::DEVICE_CPU), CombineRowsOp);

class CombineRowsGradOp : public CombineKernel {
 public:
  using CombineKernel::CombineKernel;

  void Compute(tf::OpKernelContext* context) override {
    TfExecutor executor(context);
    auto sums = sums_.Take();
    for (int unit = 0; unit < units_; ++unit) {
      Unit read;
      OP_REQUIRES_OK(context, Read(context, unit, &read));
      tf::Tensor* output = nullptr;
      OP_REQUIRES_OK(context,
                     context->allocate_output(unit, tf::TensorShape({read.num_rows, read.dim}), &output));
      const Status status = WithinMemory(
          [&] { return SumUnit(context, unit, read, executor, sums.get(), output->flat<float>().data()); });
      // An error leaves `sums` with inputs of this call.
      if (!status.ok()) *sums = RowGradientSums();
      OP_REQUIRES_OK(context, ToTf(status));
    }
  }

 private:
  // out, [read.num_rows, read.dim], becomes the gradients of a unit's rows.
  Status SumUnit(tf::OpKernelContext* context, int unit, const Unit& read, TfExecutor& executor,
                 RowGradientSums* sums, float* out) const {
    for (size_t i = 0; i < read.bags.size(); ++i) {
      const int number = inputs_of_[unit][i];
      const tf::Tensor& gradient = context->input(2 * units_ + inputs_ + number);
      const tf::TensorShape expected({read.bags[i].outputs(), read.dim});
      if (gradient.shape() != expected) {
        return InvalidArgument("The gradient of output ", number, " has the shape ",
                               gradient.shape().DebugString(), ", not ", expected.DebugString());
      }
      sums->Add(read.bags[i], gradient.flat<float>().data(), read.dim);
    }
    sums->Sum(executor, read.places, read.num_rows, read.dim, out);
    return OkStatus();
  }

  ObjectPool<RowGradientSums> sums_;
};
REGISTER_KERNEL_BUILDER(Name("SokCombineRowsGrad").Device(tf::DEVICE_CPU), CombineRowsGradOp);

}  // namespace
}  // namespace sok
