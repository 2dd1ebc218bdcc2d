// The kernel that gives all rows of a table as tensors.
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "sok_ops/kernels/cpu_tables.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_executor.h"
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
    Table& table = *CpuTableBehind(*ref.table);
    OP_REQUIRES(context, table.options().dim == dim_,
                tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' has rows of ",
                                            table.options().dim, " floats, not of ", dim_));
    TfExecutor executor(context);
    const std::lock_guard<std::mutex> lock(table.mutex());
    const std::vector<int64_t> rows = table.Rows();
    table.BringUpToDate(executor, rows);
    const int64_t count = static_cast<int64_t>(rows.size());
    tf::Tensor* keys = nullptr;
    tf::Tensor* numbers = nullptr;
    tf::Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({count}), &keys));
    OP_REQUIRES_OK(context, context->allocate_output(1, tf::TensorShape({count}), &numbers));
    OP_REQUIRES_OK(context, context->allocate_output(2, tf::TensorShape({count, dim_}), &values));
    std::copy(rows.begin(), rows.end(), numbers->flat<int64_t>().data());
    int64_t* const next_key = keys->flat<int64_t>().data();
    float* const next_row = values->flat<float>().data();
    for (int64_t i = 0; i < count; ++i) {
      next_key[i] = table.key(rows[i]);
      std::copy_n(table.weights(rows[i]), dim_, next_row + i * dim_);
    }
  }

 private:
  int64_t dim_;
};
REGISTER_KERNEL_BUILDER(Name("SokTableExport").Device(tf::DEVICE_CPU), TableExportOp);

}  // namespace
}  // namespace sok
