// Reads inputs and allocates outputs that several kernels of a group lookup have in common.
#ifndef SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_
#define SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/engine/engine.h"
#include "sok_ops/kernels/group_attributes.h"
#include "sok_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace sok {

// The tables of a group.
struct GroupTables {
  Engine* engine = nullptr;  // of all tables
  std::vector<TableRef> refs;
  std::vector<EngineTable*> tables;

  const TableOptions& options() const { return tables[0]->options(); }
  // The status of a call with these tables, for TensorFlow. Memory that runs out for several tables together
  // is an error of none of them; it then names them all.
  tensorflow::Status Named(const Status& status) const;
};

// Reads the tables from the first inputs, one for each of `dims`. InvalidArgument unless they are distinct,
// of one engine, and with rows of those lengths. Other errors are those of LookupTable.
tensorflow::Status ReadTables(tensorflow::OpKernelContext* context, const std::vector<int64_t>& dims,
                              GroupTables* tables, TableUse use = TableUse::kRows);

// FailedPrecondition if the tables are sharded over several ranks; other ops look up in such tables.
tensorflow::Status CheckOneRank(const GroupTables& tables);

// The tensors of one lookup. Those that the lookup does not have are null.
struct LookupTensors {
  const tensorflow::Tensor* ids = nullptr;
  const tensorflow::Tensor* indices = nullptr;      // sparse: [ids, 2]; packed perhaps as row_splits
  const tensorflow::Tensor* dense_shape = nullptr;  // sparse: [2], in host memory
  const tensorflow::Tensor* row_splits = nullptr;   // ragged: [bags + 1]; packed perhaps as int32
  const tensorflow::Tensor* places = nullptr;       // the weights' own indices or row_splits
  const tensorflow::Tensor* weights = nullptr;      // [ids]
};

// The tensors of each lookup: the kernel's inputs from `first` on, and for packed lookups the tensors of
// `batch`. Both are in the order of an op's inputs. In a batch, a tensor without a dtype stands for none.
std::vector<LookupTensors> InputTensors(tensorflow::OpKernelContext* context, int first,
                                        const GroupAttributes& attributes,
                                        const std::vector<tensorflow::Tensor>& batch);

// What a lookup op takes in one step. Valid as long as the kernel's inputs.
struct GroupInputs {
  std::vector<LookupInput> lookups;
  std::vector<tensorflow::Tensor> batch;  // the tensors of packed lookups, on the device
};

// The sizes of one step of a group. The later kernels of the step check their inputs against them.
struct GroupShape {
  std::shared_ptr<const GroupAttributes> attributes;
  bool training = true;
  std::vector<tensorflow::TensorShape> outputs;  // one per output
  std::vector<int64_t> num_ids;                  // by lookup

  int num_lookups() const { return static_cast<int>(attributes->specs.size()); }
};

// Reads and checks the inputs of a lookup op after its handles. shape->attributes must be set; fills in the
// rest of `shape`.
tensorflow::Status ReadGroupInputs(tensorflow::OpKernelContext* context, const GroupTables& tables,
                                   GroupShape* shape, GroupInputs* inputs);

// Reads the gradients of a group's outputs, `num_gradients` inputs that begin with `first_input`.
// (*gradients)[l] belongs to lookup l. weighted[l] says whether the weights of lookup l get gradients.
// InvalidArgument if the inputs, `dims` or `weighted` do not fit the group.
tensorflow::Status ReadOutputGradients(tensorflow::OpKernelContext* context, int first_input,
                                       int num_gradients, const GroupShape& shape,
                                       const std::vector<int64_t>& dims, const std::vector<bool>& weighted,
                                       std::vector<GradientRows>* gradients);

// Allocates the gradient of table `t` of `num_tables`, which is two outputs. Output t is filled with the
// references to the rows that the group trains. *values points to output num_tables + t, the gradients of
// these rows, `dim` floats each. If nothing in this run reads either output, allocates none and sets *values
// to null.
tensorflow::Status AllocateRowGradients(tensorflow::OpKernelContext* context,
                                        const EngineContext& engine_context, int t, int num_tables,
                                        const LookedUpRows& group, int64_t dim, float** values);

// Allocates the gradients of the weights of the `weighted` lookups, the kernel's outputs from `first_output`
// on. (*weight_grads)[l] is null if lookup l has no such output, or if nothing in this run reads it.
tensorflow::Status AllocateWeightGradients(tensorflow::OpKernelContext* context, int first_output,
                                           const GroupShape& shape, const std::vector<bool>& weighted,
                                           std::vector<float*>* weight_grads);

// Whether any pointer is not null. Weights are mostly inputs of the model, whose gradients nothing reads.
bool WantsAny(const std::vector<float*>& gradients);

// The common part of the kernels that sum gradients and train several tables.

// The attributes `trained` and `optimizer` of such an op, and its last inputs, `hyper`.
class TableSteps {
 public:
  // Reads the attributes. InvalidArgument if they do not fit `num_tables` or each other.
  tensorflow::Status Read(tensorflow::OpKernelConstruction* construction, int64_t num_tables);

  const std::string& optimizer() const { return optimizer_; }

  // Appends the steps of the trained tables, whose hyper-parameters are valid as long as the inputs.
  // InvalidArgument if the hyper-parameters of a table are not a vector.
  tensorflow::Status Steps(tensorflow::OpKernelContext* context, const GroupTables& tables,
                           std::vector<EngineStep>* steps) const;

 private:
  std::vector<int32_t> trained_;
  std::string optimizer_;
};

// Copies the batch of a SokPackBatch, in input `index` of a kernel on a GPU, to the device, for later work of
// the device's stream. Sets `tensors` to views of it: those of the packed lookups, in the order of
// SokPackBatch's inputs without dense shapes. Returns the error that the batch holds, if any; InvalidArgument
// if it is not a batch of these lookups.
tensorflow::Status UnpackBatch(tensorflow::OpKernelContext* context, int index,
                               const GroupAttributes& attributes, std::vector<tensorflow::Tensor>* tensors);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_
