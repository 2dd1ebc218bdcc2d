// The inputs that the kernels of a group have in common.
#ifndef SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_
#define SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/engine/engine.h"
#include "sok_ops/kernels/group_attributes.h"
#include "sok_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The tables of a group.
struct GroupTables {
  Engine* engine = nullptr;  // of them all
  std::vector<TableRef> refs;
  std::vector<EngineTable*> tables;

  const TableOptions& options() const { return tables[0]->options(); }
};

// The tables behind the first inputs, one for each of `dims`: distinct, of one engine, and with rows of those
// lengths.
tensorflow::Status ReadTables(tensorflow::OpKernelContext* context, const std::vector<int64_t>& dims,
                              GroupTables* tables);

// FailedPrecondition where the tables are one rank's part of several: such lookups have other ops.
tensorflow::Status CheckOneRank(const GroupTables& tables);

// The sizes of a step of a group, which the later kernels of the step check their inputs against.
struct GroupShape {
  std::shared_ptr<const GroupAttributes> attributes;
  bool training = true;
  std::vector<tensorflow::TensorShape> outputs;  // one per output
  std::vector<int64_t> num_ids;                  // by lookup

  int num_lookups() const { return static_cast<int>(attributes->specs.size()); }
};

// Reads and checks the inputs of a lookup op after its handles. `shape` has its attributes. inputs[l] belongs
// to lookup l, and lives as long as the kernel's inputs.
tensorflow::Status ReadGroupInputs(tensorflow::OpKernelContext* context, const GroupTables& tables,
                                   GroupShape* shape, std::vector<LookupInput>* inputs);

// The gradients of a group's outputs, which are `num_gradients` inputs from `first_input` on, by lookup.
// weighted[l] says whether the weights of lookup l get gradients. InvalidArgument where these and the group
// do not belong together.
tensorflow::Status ReadOutputGradients(tensorflow::OpKernelContext* context, int first_input,
                                       int num_gradients, const GroupShape& shape,
                                       const std::vector<int64_t>& dims, const std::vector<bool>& weighted,
                                       std::vector<GradientRows>* gradients);

// Allocates the gradient of table `t` of `num_tables`: output t, which is set to the references of the rows
// that the group trains, and output num_tables + t, their gradients of `dim` floats, to which *values then
// points. Where nothing in this run reads either, neither is made, and *values is null.
tensorflow::Status AllocateRowGradients(tensorflow::OpKernelContext* context,
                                        const EngineContext& engine_context, int t, int num_tables,
                                        const TrainedGroup& group, int64_t dim, float** values);

// Allocates the gradients of the weights of those lookups that are `weighted`, which are the kernel's outputs
// from `first_output` on. weight_grads[l] is null where nothing in this run reads them, or there are none.
tensorflow::Status AllocateWeightGradients(tensorflow::OpKernelContext* context, int first_output,
                                           const GroupShape& shape, const std::vector<bool>& weighted,
                                           std::vector<float*>* weight_grads);

// Whether any of them is wanted. Mostly weights are inputs of the model, whose gradients nobody asks for.
bool WantsAny(const std::vector<float*>& gradients);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_
