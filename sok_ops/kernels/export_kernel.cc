// The kernel that returns all rows of a table as tensors.
#include <algorithm>
#include <cstdint>

#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class TableExportOp : public tf::OpKernel {
 public:
  explicit TableExportOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dim", &dim_));
  }

  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    OP_REQUIRES(context, ref.table->options().dim == dim_,
                tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' has rows of ",
                                            ref.table->options().dim, " floats, not of ", dim_));
    const TfEngineContext call(context);
    const auto held = ref.table->Hold(*call);
    OP_REQUIRES_OK(context, ToTf(held.status()));
    const int64_t count = held.value()->state().rows;
    tf::Tensor* keys = nullptr;
    tf::Tensor* numbers = nullptr;
    tf::Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({count}), &keys));
    OP_REQUIRES_OK(context, context->allocate_output(1, tf::TensorShape({count}), &numbers));
    OP_REQUIRES_OK(context, context->allocate_output(2, tf::TensorShape({count, dim_}), &values));
    int64_t* next_key = keys->flat<int64_t>().data();
    int64_t* next_number = numbers->flat<int64_t>().data();
    float* next_row = values->flat<float>().data();
    RowsToRead what;
    what.up_to_date = true;
    OP_REQUIRES_OK(context, ToTf(held.value()->ReadRows(what, [&](const RowPiece& piece) {
                     next_key = std::copy(piece.keys.begin(), piece.keys.end(), next_key);
                     next_number = std::copy(piece.numbers.begin(), piece.numbers.end(), next_number);
                     for (const float* row : piece.records) next_row = std::copy_n(row, dim_, next_row);
                     return OkStatus();
                   })));
  }

 private:
  int64_t dim_;
};
REGISTER_KERNEL_BUILDER(Name("SokTableExport").Device(tf::DEVICE_CPU), TableExportOp);
SOK_GPU_KERNEL(TableExportOp, "SokTableExport", "handle", "keys", "rows", "values");

}  // namespace
}  // namespace sok
