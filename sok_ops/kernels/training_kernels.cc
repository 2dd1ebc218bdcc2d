// The kernel that trains a table's rows.
#include <string>
#include <vector>

#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/group_lookup.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/scalars.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class ApplyGradientsOp : public tf::OpKernel {
 public:
  explicit ApplyGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(construction, construction->GetAttr("indices_unique", &indices_unique_));
  }

  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& indices = context->input(1);
    const tf::Tensor& values = context->input(2);
    const tf::Tensor& hyper = context->input(3);
    const int64_t dim = ref.table->options().dim;
    OP_REQUIRES(
        context, indices.dims() == 1 && values.dims() == 2 && hyper.dims() == 1,
        tf::errors::InvalidArgument("Embedding variable '", ref.name(),
                                    "': gradients have indices, values and hyper-parameters of shapes ",
                                    indices.shape().DebugString(), ", ", values.shape().DebugString(),
                                    " and ", hyper.shape().DebugString(), ", not [n], [n, dim] and [h]"));
    OP_REQUIRES(context, values.dim_size(0) == indices.dim_size(0) && values.dim_size(1) == dim,
                tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' of dim ", dim,
                                            ": gradients of shape ", values.shape().DebugString(), " for ",
                                            indices.dim_size(0), " rows"));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, ToTf(ref.table->ApplyGradients(
                                *call, optimizer_, {hyper.flat<float>().data(), hyper.NumElements()},
                                {indices.flat<int64_t>().data(), indices.NumElements()},
                                values.flat<float>().data(), indices_unique_)));
  }

 private:
  std::string optimizer_;
  bool indices_unique_;
};
SOK_KERNEL(ApplyGradientsOp, "SokApplyGradients", "handle", "hyper");

// The kernel that tells how many rows a lookup trains.

class TrainedRowsOp : public tf::OpKernel {
 public:
  explicit TrainedRowsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("table", &table_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const LookedUpRows* group = nullptr;
    size_t tables = 0;
    if (const auto* lookup = StateIn<GroupLookup>(context->input(0))) {
      group = lookup->plan.get();
      tables = lookup->shape.attributes->dims.size();
    } else if (const auto* served = StateIn<ServedLookup>(context->input(0))) {
      group = served->group.get();
      tables = served->dims.size();
    }
    OP_REQUIRES(
        context, group != nullptr && static_cast<size_t>(table_) < tables,
        tf::errors::InvalidArgument("SokTrainedRows: `lookup` is not a lookup's output for its gradient, "
                                    "or its group has no table ",
                                    table_));
    OP_REQUIRES_OK(context, OutputScalar(context, 0, group->trained_rows(table_)));
  }

 private:
  int table_;
};
SOK_KERNEL(TrainedRowsOp, "SokTrainedRows", "lookup", "rows");

// The kernel that trains the rows of a group's tables with the gradients of the group's outputs.

class GroupLookupApplyGradientsOp : public tf::OpKernel {
 public:
  explicit GroupLookupApplyGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_outputs", &num_outputs_));
    OP_REQUIRES_OK(construction, steps_.Read(construction, static_cast<int64_t>(dims_.size())));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_tables = static_cast<int>(dims_.size());
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, dims_, &tables));
    const GroupLookup* lookup = nullptr;
    OP_REQUIRES_OK(context, ReadGroupLookup(context, num_tables, tables, &lookup));
    const std::vector<bool> no_weights(lookup->shape.num_lookups());
    std::vector<GradientRows> gradients;
    OP_REQUIRES_OK(context, ReadOutputGradients(context, num_tables + 1, num_outputs_, lookup->shape, dims_,
                                                no_weights, &gradients));
    std::vector<EngineStep> steps;
    OP_REQUIRES_OK(context, steps_.Steps(context, tables, &steps));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(
        context, tables.Named(tables.engine->Train(*call, *lookup->plan, gradients, steps_.optimizer(), steps,
                                                   scratch_.Take(tables.engine).get())));
  }

 private:
  std::vector<int64_t> dims_;
  TableSteps steps_;
  int num_outputs_ = 0;
  ScratchPool scratch_;
};
SOK_KERNEL(GroupLookupApplyGradientsOp, "SokGroupLookupApplyGradients", "handles", "plan", "hyper");

}  // namespace

}  // namespace sok
