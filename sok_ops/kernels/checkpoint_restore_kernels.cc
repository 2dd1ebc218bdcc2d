// Kernels that restore tables from the folder beside a checkpoint of TensorFlow's.
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/checkpoint/table_checkpoint.h"
#include "sok_ops/kernels/cpu_tables.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/stage.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// A checkpoint of one table that has been verified. That of a table without rows is loaded already: reading
// it twice would only cost time, and a table beside an empty one costs no memory.
struct CheckedTable {
  std::unique_ptr<TableRestore> restore;
  std::shared_ptr<Table> loaded;  // null where the table in use has rows
};

struct CheckedTables {
  std::vector<CheckedTable> tables;
};

StatusOr<std::shared_ptr<Table>> LoadFresh(Executor& executor, TableRestore& restore) {
  StatusOr<std::unique_ptr<Table>> made = Table::Create(executor, restore.options());
  SOK_RETURN_IF_ERROR(made.status());
  std::shared_ptr<Table> fresh = std::move(made.value());
  SOK_RETURN_IF_ERROR(restore.Load(executor, fresh.get()));
  return fresh;
}

// Puts a table without rows in the place of the one in `ref`, whose memory the one to be read in needs.
Status GiveUpRows(Executor& executor, TableOptions options, TableRef* ref) {
  options.use_hashtable = true;  // without hashing all rows would be there at once
  StatusOr<std::unique_ptr<Table>> made = Table::Create(executor, std::move(options));
  SOK_RETURN_IF_ERROR(made.status());
  ref->table = BehindSeam(std::move(made.value()));
  ref->resource->Replace(ref->table);
  return OkStatus();
}

class CheckCheckpointOp : public tf::OpKernel {
 public:
  explicit CheckCheckpointOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_tables", &num_tables_));
    OP_REQUIRES_OK(construction, construction->GetAttr("optimizer_state", &optimizer_state_));
  }

  void Compute(tf::OpKernelContext* context) override {
    auto checked = std::make_shared<CheckedTables>();
    OP_REQUIRES_OK(context, ReportStage(context, Run(context, &checked->tables)));
    tf::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(2, tf::TensorShape({}), &output));
    output->scalar<tf::Variant>()() = StateVariant<CheckedTables>{std::move(checked)};
  }

 private:
  tf::Status Run(tf::OpKernelContext* context, std::vector<CheckedTable>* checked) {
    tf::tstring prefix;
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_, "prefix", &prefix));
    const tf::Tensor& references = context->input(num_tables_ + 1);
    if (references.NumElements() != num_tables_) {
      return tf::errors::InvalidArgument("`references` has shape ", references.shape().DebugString(),
                                         ", not [", num_tables_, "]");
    }
    TfExecutor executor(context);
    for (int i = 0; i < num_tables_; ++i) {
      TableRef ref;
      TF_RETURN_IF_ERROR(LookupTable(context, i, &ref));
      CheckedTable one;
      TF_RETURN_IF_ERROR(ToTf(
          CheckOne(executor, *CpuTableBehind(*ref.table), prefix, references.flat<tf::tstring>()(i), &one)));
      checked->push_back(std::move(one));
    }
    return tf::Status();
  }

  Status CheckOne(Executor& executor, const Table& table, const std::string& prefix,
                  const std::string& reference, CheckedTable* checked) {
    RestoreParts parts;
    parts.optimizer = parts.counts = optimizer_state_;
    StatusOr<std::unique_ptr<TableRestore>> opened =
        TableRestore::Open(prefix, reference, table.options(), parts);
    SOK_RETURN_IF_ERROR(opened.status());
    checked->restore = std::move(opened.value());
    bool empty;
    {
      const std::lock_guard<std::mutex> lock(table.mutex());
      empty = table.size() == 0;
    }
    if (!empty) return checked->restore->Check(executor);
    StatusOr<std::shared_ptr<Table>> loaded = LoadFresh(executor, *checked->restore);
    SOK_RETURN_IF_ERROR(loaded.status());
    checked->loaded = std::move(loaded.value());
    return OkStatus();
  }

  int num_tables_;
  bool optimizer_state_;
};
REGISTER_KERNEL_BUILDER(Name("SokCheckCheckpoint").Device(tf::DEVICE_CPU), CheckCheckpointOp);

class LoadCheckpointOp : public tf::OpKernel {
 public:
  explicit LoadCheckpointOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_tables", &num_tables_));
  }

  void Compute(tf::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, ReportStage(context, Run(context)));
  }

 private:
  tf::Status Run(tf::OpKernelContext* context) {
    const auto* checked = StateIn<CheckedTables>(context->input(num_tables_));
    if (checked == nullptr || checked->tables.size() != static_cast<size_t>(num_tables_)) {
      return tf::errors::InvalidArgument("`checked` is not what SokCheckCheckpoint gave for these tables");
    }
    TfExecutor executor(context);
    for (int i = 0; i < num_tables_; ++i) {
      TableRef ref;
      TF_RETURN_IF_ERROR(LookupTable(context, i, &ref));
      TF_RETURN_IF_ERROR(ToTf(LoadOne(executor, checked->tables[i], ref)));
    }
    return tf::Status();
  }

  static Status LoadOne(Executor& executor, const CheckedTable& checked, TableRef& ref) {
    bool tracks_changes;
    {
      const Table& table = *CpuTableBehind(*ref.table);
      const std::lock_guard<std::mutex> lock(table.mutex());
      tracks_changes = table.tracks_changes();
    }
    std::shared_ptr<Table> loaded = checked.loaded;
    if (loaded == nullptr) {
      SOK_RETURN_IF_ERROR(GiveUpRows(executor, checked.restore->options(), &ref));
      StatusOr<std::shared_ptr<Table>> read = LoadFresh(executor, *checked.restore);
      // The disk has failed since it was checked. What is left is a table as its initializer makes it.
      if (!read.ok()) {
        StatusOr<std::unique_ptr<Table>> made = Table::Create(executor, checked.restore->options());
        if (made.ok()) ref.resource->Replace(BehindSeam(std::move(made.value())));
        return read.status();
      }
      loaded = std::move(read.value());
    }
    if (tracks_changes) {
      const std::lock_guard<std::mutex> lock(loaded->mutex());
      SOK_RETURN_IF_ERROR(loaded->TrackChanges());
    }
    ref.resource->Replace(BehindSeam(std::move(loaded)));
    return OkStatus();
  }

  int num_tables_;
};
REGISTER_KERNEL_BUILDER(Name("SokLoadCheckpoint").Device(tf::DEVICE_CPU), LoadCheckpointOp);

}  // namespace
}  // namespace sok
