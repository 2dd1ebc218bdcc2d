// The kernel that returns all that a table keeps of its keys, except optimizer slots.
#include <algorithm>
#include <cstdint>

#include "cc/table/table_errors.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// A vector output that is filled piece by piece.
class VectorOutput {
 public:
  tf::Status Allocate(tf::OpKernelContext* context, int index, int64_t size) {
    tf::Tensor* tensor = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(index, tf::TensorShape({size}), &tensor));
    next_ = tensor->flat<int64_t>().data();
    return tf::Status();
  }
  void Append(Span<const int64_t> values) { next_ = std::copy(values.begin(), values.end(), next_); }

 private:
  int64_t* next_ = nullptr;
};

class TableSnapshotOp : public tf::OpKernel {
 public:
  explicit TableSnapshotOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(construction, construction->GetAttr("with_values", &with_values_));
  }

  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const TableOptions& options = ref.table->options();
    OP_REQUIRES(context, options.dim == dim_,
                tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' has rows of ", options.dim,
                                            " floats, not of ", dim_));
    const TfEngineContext call(context);
    const auto held = ref.table->Hold(*call);
    OP_REQUIRES_OK(context, ToTf(held.status()));
    OP_REQUIRES_OK(context, ReturnRows(context, held.value().get()));
    const bool has_waiting = options.admission.kind == Admission::Kind::kCounter;
    OP_REQUIRES_OK(context, ReturnWaiting(context, has_waiting ? held.value().get() : nullptr));
  }

 private:
  tf::Status ReturnRows(tf::OpKernelContext* context, HeldTable* table) {
    const HeldState state = table->state();
    RowsToRead what;
    what.up_to_date = with_values_;
    what.parts.frequency = state.parts.frequency;
    what.parts.last_step = state.parts.last_step;
    VectorOutput keys, frequency, last_step;
    TF_RETURN_IF_ERROR(keys.Allocate(context, 0, state.rows));
    TF_RETURN_IF_ERROR(frequency.Allocate(context, 2, what.parts.frequency ? state.rows : 0));
    TF_RETURN_IF_ERROR(last_step.Allocate(context, 3, what.parts.last_step ? state.rows : 0));
    tf::Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(
        context->allocate_output(1, tf::TensorShape({with_values_ ? state.rows : 0, dim_}), &values));
    float* next_row = values->flat<float>().data();
    return Named(table, table->ReadRows(what, [&](const RowPiece& piece) {
      keys.Append(piece.keys);
      frequency.Append(piece.frequency);
      last_step.Append(piece.last_step);
      if (!with_values_) return OkStatus();
      for (const float* row : piece.records) next_row = std::copy_n(row, dim_, next_row);
      return OkStatus();
    }));
  }

  static tf::Status Named(HeldTable* table, const Status& status) {
    return ToTf(NamedError(table->options(), status));
  }

  // `table` is null if no id can wait.
  static tf::Status ReturnWaiting(tf::OpKernelContext* context, HeldTable* table) {
    int64_t count = 0;
    if (table != nullptr) {
      const auto counted = table->CountWaiting(RowSet::kAll);
      TF_RETURN_IF_ERROR(Named(table, counted.status()));
      count = counted.value();
    }
    VectorOutput ids, counts, last_steps;
    TF_RETURN_IF_ERROR(ids.Allocate(context, 4, count));
    TF_RETURN_IF_ERROR(counts.Allocate(context, 5, count));
    TF_RETURN_IF_ERROR(last_steps.Allocate(context, 6, count));
    if (count == 0) return tf::Status();
    return Named(table, table->ReadWaiting(RowSet::kAll, [&](const WaitingPiece& piece) {
      ids.Append(piece.ids);
      counts.Append(piece.counts);
      last_steps.Append(piece.last_steps);
      return OkStatus();
    }));
  }

  int64_t dim_;
  bool with_values_;
};
SOK_KERNEL(TableSnapshotOp, "SokTableSnapshot", "handle", "keys", "values", "frequency", "last_step",
           "waiting", "waiting_frequency", "waiting_last_step");

}  // namespace
}  // namespace sok
