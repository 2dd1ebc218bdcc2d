#ifndef SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_
#define SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/lookup/lookup_input.h"
#include "sok_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// Which lookups of a group are concatenated in which output, along its last dimension.

class OutputLayout {
 public:
  // Reads and checks the attributes `beside` and `num_outputs` of an op. `specs` are its lookups; the rows of
  // table t have dims[t] floats.
  tensorflow::Status Read(tensorflow::OpKernelConstruction* construction,
                          const std::vector<LookupSpec>& specs, const std::vector<int64_t>& dims);

  int num_outputs() const { return static_cast<int>(begin_.size()) - 1; }
  int num_lookups() const { return static_cast<int>(dims_.size()); }

  // Appends the shapes of the outputs; of_lookups[l] is the shape of lookup l alone. InvalidArgument, which
  // names the variables, if lookups of one output differ in more than the last dimension.
  tensorflow::Status Shapes(const std::vector<tensorflow::TensorShape>& of_lookups,
                            const std::vector<TableRef>& tables,
                            std::vector<tensorflow::TensorShape>* shapes) const;

  // The floats per row of output `o`: the sum of its lookups' dims.
  int64_t Width(int o) const;

  // Appends a view of each lookup's part of output `o`, which begins at `data`: OutputRows or GradientRows.
  template <typename Rows, typename Float>
  void AppendParts(int o, Float* data, std::vector<Rows>* parts) const {
    const int64_t width = Width(o);
    for (int l = begin_[o]; l < begin_[o + 1]; data += dims_[l++]) parts->push_back({data, width});
  }

  // The lookups of output `o` are [begin(o), begin(o + 1)).
  int begin(int o) const { return begin_[o]; }

  // The position of lookup l's table in the group.
  int table(int l) const { return tables_[l]; }

 private:
  std::vector<int> begin_;     // outputs + 1
  std::vector<int> tables_;    // by lookup
  std::vector<int64_t> dims_;  // by lookup
};

// Allocates the first outputs of a kernel, with `shapes`, and appends each lookup's part of them to `rows`.
// An error names the variable of the output's first lookup.
tensorflow::Status AllocateOutputs(tensorflow::OpKernelContext* context, const OutputLayout& layout,
                                   const std::vector<tensorflow::TensorShape>& shapes,
                                   const std::vector<TableRef>& tables, std::vector<OutputRows>* rows);

// The attributes of one lookup that its engine does not need.
struct TensorSpec {
  int64_t slots = 0;    // how many consecutive bags belong to one sample; 0: bags are not grouped by sample
  bool placed = false;  // the weights' own indices or row splits are inputs, too
  int bag_inputs = 0;   // the number of tensors of the op's input `bags` that belong to the lookup
};

// The attributes of a group lookup op.
struct GroupAttributes {
  std::vector<int64_t> dims;        // by table
  std::vector<LookupSpec> specs;    // by lookup
  std::vector<TensorSpec> tensors;  // by lookup
  std::vector<bool> packed;         // by lookup: whether its tensors are in the op's input `batch`
  OutputLayout layout;

  bool has_batch() const { return std::find(packed.begin(), packed.end(), true) != packed.end(); }
  // The number of lookups with sparse ids.
  int num_sparse() const;

  // Reads and checks the attributes.
  tensorflow::Status Read(tensorflow::OpKernelConstruction* construction);
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_
