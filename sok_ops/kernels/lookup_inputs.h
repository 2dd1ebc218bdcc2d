#ifndef SOK_SOK_OPS_KERNELS_LOOKUP_INPUTS_H_
#define SOK_SOK_OPS_KERNELS_LOOKUP_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_plan.h"
#include "sok_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

enum class IdLayout { kSparse, kRagged, kDense };

// The attributes of SokGroupLookup that describe one lookup.
struct LookupSpec {
  IdLayout layout = IdLayout::kDense;
  int table = 0;
  bool pooled = false;
  Combiner combiner = Combiner::kSum;
  bool weighted = false;
  int64_t slots = 0;
  bool positive_weights_only = false;  // ids whose weight is not above zero are left out
  bool placed = false;                 // the weights say where they stand
  bool keeps_bags = false;             // bags of one id each are bags, too

  // How many of the op's inputs `bags` are the lookup's.
  int bag_inputs() const {
    return (layout == IdLayout::kSparse ? 2 : layout == IdLayout::kRagged ? 1 : 0) + (placed ? 1 : 0);
  }
};

// Reads and checks the attributes of all lookups of a SokGroupLookup.
tensorflow::Status ReadLookupSpecs(tensorflow::OpKernelConstruction* construction,
                                   std::vector<LookupSpec>* specs);

// The tensors of one lookup. The bag tensors and weights are null where its layout has none.
struct LookupTensors {
  const tensorflow::Tensor* ids = nullptr;
  const tensorflow::Tensor* indices = nullptr;      // sparse: [ids, 2]
  const tensorflow::Tensor* dense_shape = nullptr;  // sparse: [rank]
  const tensorflow::Tensor* row_splits = nullptr;   // ragged: [bags + 1]
  const tensorflow::Tensor* places = nullptr;       // as indices or row_splits, of the weights
  const tensorflow::Tensor* weights = nullptr;      // [ids]
};

// The shape of a lookup's output. Checks the tensors' shapes and the number of bags.
tensorflow::Status OutputShape(const LookupSpec& spec, const LookupTensors& tensors, const TableRef& table,
                               tensorflow::TensorShape* shape);

// The ids of each table of a group, as GroupForward takes them: those of the tensor itself where one lookup
// brings them in the order of its bags, else a copy. May be used again for the next step.
struct GroupIds {
  std::vector<Span<const int64_t>> views;    // valid as long as the tensors
  std::vector<std::vector<int64_t>> copies;  // for the views that need one
};

// Fills `plan`, whatever it held, with all lookups, and `ids` with their ids. tensors[l] belongs to specs[l];
// OutputShape has found nothing wrong with any of them. Checks the tensors' values: an error names the
// variable, and is that of the first lookup that has one.
Status ReadLookups(Executor& executor, const std::vector<LookupSpec>& specs,
                   const std::vector<LookupTensors>& tensors, const std::vector<TableRef>& tables,
                   LookupPlan* plan, GroupIds* ids);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_LOOKUP_INPUTS_H_
