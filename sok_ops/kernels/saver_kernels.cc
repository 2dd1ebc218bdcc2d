// Kernels that write tables out and read them in.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/dedup/dedup.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

tf::Status SetOk(tf::OpKernelContext* context) {
  tf::Tensor* status = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, tf::TensorShape({}), &status));
  status->scalar<tf::tstring>()() = "OK";
  return tf::Status();
}

// An empty table like `table`. A restore fills it and puts it in the other's place when all went well, so
// that a bad file leaves the variable as it was.
Status MakeEmpty(Executor& executor, const Table& table, std::shared_ptr<Table>* empty) {
  StatusOr<std::unique_ptr<Table>> made = Table::Create(executor, table.options());
  SOK_RETURN_IF_ERROR(made.status());
  *empty = std::move(made.value());
  return OkStatus();
}

// Keys in [n] and values in [n, dim], no key twice.
tf::Status CheckRows(tf::OpKernelContext* context, const TableRef& ref, const tf::Tensor& keys,
                     const tf::Tensor& values) {
  const int64_t dim = ref.table->options().dim;
  if (keys.dims() != 1 || values.dims() != 2 || values.dim_size(0) != keys.dim_size(0) ||
      values.dim_size(1) != dim) {
    return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' of dim ", dim, " cannot take ",
                                       "keys of shape ", keys.shape().DebugString(), " with values of shape ",
                                       values.shape().DebugString());
  }
  TfExecutor executor(context);
  Deduplicator deduplicator;
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(keys.NumElements());
  const Span<const int64_t> ids(keys.flat<int64_t>().data(), keys.NumElements());
  TF_RETURN_IF_ERROR(ToTf(deduplicator.Run(executor, ids, &unique, Span<int32_t>(inverse))));
  for (int64_t i = 0, seen = 0; i < ids.size(); ++i) {
    if (inverse[i] == seen) {
      ++seen;
    } else {
      return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "': key ", ids[i],
                                         " stands twice among the keys to set");
    }
  }
  return tf::Status();
}

class TableExportOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    Table& table = *ref.table;
    TfExecutor executor(context);
    const std::lock_guard<std::mutex> lock(table.mutex());
    const std::string state = table.SerializeOptimizer(executor);
    const std::vector<int64_t> all_rows = table.Rows();
    const int64_t rows = table.size();
    const int64_t dim = table.options().dim;
    const int64_t slot_width = table.slot_width();
    const Span<const float> first_hyper = table.first_hyper();
    tf::Tensor* keys = nullptr;
    tf::Tensor* values = nullptr;
    tf::Tensor* slots = nullptr;
    tf::Tensor* optimizer = nullptr;
    tf::Tensor* hyper = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({rows}), &keys));
    OP_REQUIRES_OK(context, context->allocate_output(1, tf::TensorShape({rows, dim}), &values));
    OP_REQUIRES_OK(context, context->allocate_output(2, tf::TensorShape({rows, slot_width}), &slots));
    OP_REQUIRES_OK(context, context->allocate_output(3, tf::TensorShape({2}), &optimizer));
    OP_REQUIRES_OK(context, context->allocate_output(4, tf::TensorShape({first_hyper.size()}), &hyper));
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = all_rows[i];
      keys->flat<int64_t>()(i) = table.key(row);
      std::copy_n(table.weights(row), dim, values->flat<float>().data() + i * dim);
      std::copy_n(table.slots(row), slot_width, slots->flat<float>().data() + i * slot_width);
    }
    optimizer->vec<tf::tstring>()(0) = table.optimizer_name();
    optimizer->vec<tf::tstring>()(1) = state;
    std::copy(first_hyper.begin(), first_hyper.end(), hyper->flat<float>().data());
  }
};
REGISTER_KERNEL_BUILDER(Name("SokTableExport").Device(tf::DEVICE_CPU), TableExportOp);

class TableImportOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& keys = context->input(1);
    const tf::Tensor& values = context->input(2);
    const tf::Tensor& slots = context->input(3);
    const tf::Tensor& optimizer = context->input(4);
    const tf::Tensor& hyper = context->input(5);
    OP_REQUIRES_OK(context, CheckRows(context, ref, keys, values));
    OP_REQUIRES(
        context, slots.dims() == 2 && slots.dim_size(0) == keys.dim_size(0) && optimizer.NumElements() == 2,
        tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' cannot take slots of shape ",
                                    slots.shape().DebugString(), " for ", keys.dim_size(0), " rows"));
    TfExecutor executor(context);
    std::shared_ptr<Table> fresh;
    OP_REQUIRES_OK(context, ToTf(MakeEmpty(executor, *ref.table, &fresh)));
    const Span<const int64_t> ids(keys.flat<int64_t>().data(), keys.NumElements());
    OP_REQUIRES_OK(context, ToTf(fresh->Assign(executor, ids, values.flat<float>().data())));
    const std::string name(optimizer.flat<tf::tstring>()(0));
    if (!name.empty()) {
      OP_REQUIRES_OK(context,
                     ToTf(fresh->RestoreOptimizer(name, {hyper.flat<float>().data(), hyper.NumElements()},
                                                  std::string(optimizer.flat<tf::tstring>()(1)))));
    }
    const int64_t width = fresh->slot_width();
    OP_REQUIRES(
        context, slots.dim_size(1) == width,
        tf::errors::InvalidArgument("Embedding variable '", ref.name(), "': optimizer '", name, "' has ",
                                    width, " floats of slots per row, not ", slots.dim_size(1)));
    std::vector<int64_t> rows(ids.size());
    OP_REQUIRES_OK(context, ToTf(fresh->Find(executor, ids, Span<int64_t>(rows))));
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (rows[i] == Table::kAbsent) continue;  // another rank's
      std::copy_n(slots.flat<float>().data() + i * width, width, fresh->slots(rows[i]));
    }
    ref.resource->Replace(std::move(fresh));
  }
};
REGISTER_KERNEL_BUILDER(Name("SokTableImport").Device(tf::DEVICE_CPU), TableImportOp);

class TableAssignOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& keys = context->input(1);
    const tf::Tensor& values = context->input(2);
    OP_REQUIRES_OK(context, CheckRows(context, ref, keys, values));
    TfExecutor executor(context);
    {
      const std::lock_guard<std::mutex> lock(ref.table->mutex());
      OP_REQUIRES_OK(context,
                     ToTf(ref.table->Assign(executor, {keys.flat<int64_t>().data(), keys.NumElements()},
                                            values.flat<float>().data())));
    }
    OP_REQUIRES_OK(context, SetOk(context));
  }
};
REGISTER_KERNEL_BUILDER(Name("SokTableAssign").Device(tf::DEVICE_CPU), TableAssignOp);

}  // namespace
}  // namespace sok
