// The objects that the library keeps in a session's resource manager.
#ifndef SOK_SOK_OPS_KERNELS_RESOURCES_H_
#define SOK_SOK_OPS_KERNELS_RESOURCES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/engine_table.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace sok {

// The settings that sok.Init made for a session, the same on all ranks except for `rank`. A session has one
// if and only if Init has run.
class Runtime : public tensorflow::ResourceBase {
 public:
  Runtime(int64_t global_batch_size, uint64_t seed, tensorflow::DataType gradient_dtype, int rank, int ranks)
      : global_batch_size(global_batch_size),
        seed(seed),
        gradient_dtype(gradient_dtype),
        rank(rank),
        ranks(ranks) {}
  std::string DebugString() const override {
    return StrCat("SOK runtime, rank ", rank, " of ", ranks, ", global batch size ", global_batch_size);
  }

  const int64_t global_batch_size;
  // Of the tables that are made from now on: they change only where there is no session (init_kernel.cc).
  std::atomic<uint64_t> seed;
  // The dtype in which row gradients are sent to their owners: DT_FLOAT, DT_HALF or DT_BFLOAT16.
  std::atomic<tensorflow::DataType> gradient_dtype;
  const int rank;
  const int ranks;
};

// Adds `runtime` to the session. AlreadyExists if the session has one.
tensorflow::Status CreateRuntime(tensorflow::OpKernelContext* context,
                                 tensorflow::core::RefCountPtr<Runtime> runtime);

// Finds the session's Runtime. If there is none: FailedPrecondition, which says that `who` needs sok.Init.
tensorflow::Status LookupRuntime(tensorflow::OpKernelContext* context, const std::string& who,
                                 tensorflow::core::RefCountPtr<Runtime>* runtime);

// The table of an embedding variable, the dtype of its keys, and the save under way. The variable's
// initializer and a restore replace the table. Thread-safe.
class TableResource : public tensorflow::ResourceBase {
 public:
  TableResource(std::shared_ptr<EngineTable> table, tensorflow::DataType key_dtype,
                tensorflow::DataType gradient_dtype)
      : key_dtype_(key_dtype), gradient_dtype_(gradient_dtype), table_(std::move(table)) {}
  std::string DebugString() const override { return StrCat("SOK table '", table()->options().name, "'"); }

  tensorflow::DataType key_dtype() const { return key_dtype_; }
  // The dtype in which gradients of rows are sent to their owners.
  tensorflow::DataType gradient_dtype() const { return gradient_dtype_; }
  std::shared_ptr<EngineTable> table() const {
    const MutexLock lock(mutex_);
    return table_;
  }
  // Kernels that already use the old table continue with it. `lost` as for Lose.
  void Replace(std::shared_ptr<EngineTable> table, std::string lost = "") {
    const MutexLock lock(mutex_);
    table_ = std::move(table);
    lost_ = std::move(lost);
  }

  // Says why the table is without its rows; "": it is not. Until it is not, only a restore can use it.
  void Lose(std::string reason) {
    const MutexLock lock(mutex_);
    lost_ = std::move(reason);
  }
  // Empty if the table has not lost its rows.
  std::string lost() const {
    const MutexLock lock(mutex_);
    return lost_;
  }

  // Sets the save that has begun and not ended, and returns the previous one.
  std::optional<SaveRequest> ExchangeSave(std::optional<SaveRequest> save) {
    const MutexLock lock(mutex_);
    save_.swap(save);
    return save;
  }

 private:
  const tensorflow::DataType key_dtype_;
  const tensorflow::DataType gradient_dtype_;
  mutable Mutex mutex_;
  std::shared_ptr<EngineTable> table_ SOK_GUARDED_BY(mutex_);
  std::string lost_ SOK_GUARDED_BY(mutex_);
  std::optional<SaveRequest> save_ SOK_GUARDED_BY(mutex_);
};

// A table in use by a kernel, and the resource that holds it.
struct TableRef {
  tensorflow::core::RefCountPtr<TableResource> resource;
  std::shared_ptr<EngineTable> table;

  const std::string& name() const { return table->options().name; }
};

// Reads the handle of an embedding variable from input `index`. InvalidArgument if the input is something
// else or does not have exactly one element.
tensorflow::Status TableHandle(tensorflow::OpKernelContext* context, int index,
                               const tensorflow::ResourceHandle** handle);

// A reason for TableResource::Lose.
constexpr char kBeingRestored[] = "it is being restored";

// What a kernel does with a table.
enum class TableUse {
  kRows,      // reads or writes its rows
  kRestore,   // replaces them; they may be lost
  kMessages,  // sends and receives messages about them; the table may only describe those of servers
};

// Finds the table of the handle in input `index`. FailedPrecondition, which names the variable, if sok.Init
// or the variable's initializer has not run, or if the table cannot be used so.
tensorflow::Status LookupTable(tensorflow::OpKernelContext* context, int index, TableRef* table,
                               TableUse use = TableUse::kRows);

// A kernel whose first inputs are the handles of its attribute `num_tables`.
class TablesOp : public tensorflow::OpKernel {
 public:
  explicit TablesOp(tensorflow::OpKernelConstruction* construction);

 protected:
  // Reads the attribute `names`, the tables' names in a checkpoint. Unless `required`, it may be empty.
  tensorflow::Status ReadNames(tensorflow::OpKernelConstruction* construction, bool required,
                               std::vector<std::string>* names) const;

  int num_tables_ = 0;
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_RESOURCES_H_
