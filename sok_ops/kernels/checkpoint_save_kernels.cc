// Kernels that save tables in files beside TensorFlow's checkpoint.
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/printable.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/registry.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/scalars.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// An id that no other save has. Unlike std::random_device it needs no file and throws nothing.
int64_t DrawId() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), 0) == sizeof(id)) return static_cast<int64_t>(id);
  static std::atomic<uint64_t> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return static_cast<int64_t>(Mix64(static_cast<uint64_t>(now) ^ (uint64_t(getpid()) << 40) ^ ++count));
}

std::string HexDigits(int64_t id) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016" PRIx64, static_cast<uint64_t>(id));
  return digits;
}

// Ends the table's last save, unless it has been ended already.
Status EndSave(const EngineContext& call, const TableRef& ref, bool succeeded) {
  const std::optional<SaveRequest> save = ref.resource->ExchangeSave(std::nullopt);
  if (!save.has_value()) return OkStatus();
  return EndTableCheckpoint(call, ref.table.get(), *save, succeeded);
}

class CheckpointStageOp : public TablesOp {
 public:
  explicit CheckpointStageOp(tf::OpKernelConstruction* construction) : TablesOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("stage", &stage_));
    OP_REQUIRES_OK(construction, construction->GetAttr("incremental", &incremental_));
    OP_REQUIRES_OK(construction, construction->GetAttr("apart", &apart_));
    OP_REQUIRES_OK(construction, ReadNames(construction, /*required=*/false, &names_));
  }

  void Compute(tf::OpKernelContext* context) override {
    int64_t id = DrawId();
    std::string others;
    OP_REQUIRES_OK(context, ReportStage(context, Run(context, &id, &others)));
    OP_REQUIRES_OK(context, OutputScalar(context, 2, id));
    OP_REQUIRES_OK(context, OutputScalar<tf::tstring>(context, 3, others));
  }

 private:
  tf::Status Run(tf::OpKernelContext* context, int64_t* id, std::string* others) {
    tf::tstring prefix;
    tf::tstring counted_by;
    bool proceed = false;
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_, "prefix", &prefix));
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 2, "counted_by", &counted_by));
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 3, "proceed", &proceed));
    if (stage_ != "begin") TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 1, "id", id));
    const std::string path = prefix;
    if (path.find("://") != std::string::npos) {
      return tf::errors::Unimplemented("A checkpoint with embedding variables needs a local directory, not '",
                                       path, "'");
    }
    std::vector<TableRef> refs(num_tables_);
    std::vector<TableToSave> tables(num_tables_);
    for (int i = 0; i < num_tables_; ++i) {
      TF_RETURN_IF_ERROR(LookupTable(context, i, &refs[i]));
      tables[i].table = refs[i].table.get();
      if (!names_.empty()) tables[i].name = names_[i];
    }
    SaveRequest request;
    request.prefix = path;
    request.id = HexDigits(*id);
    request.delta = incremental_;
    request.apart = apart_;
    request.counted_by = counted_by;
    *others = PrefixOfOthers(request);
    if (!proceed) return tf::Status();
    const TfEngineContext call(context);
    if (stage_ == "begin") {
      for (const TableRef& ref : refs) TF_RETURN_IF_ERROR(ToTf(EndSave(*call, ref, false)));
      return ToTf(BeginCheckpoint(*call, tables, request));
    }
    for (const TableRef& ref : refs) ref.resource->ExchangeSave(request);
    return ToTf(WriteCheckpointPart(*call, tables, request));
  }

  std::string stage_;
  bool incremental_;
  bool apart_;
  std::vector<std::string> names_;
};
SOK_KERNEL(CheckpointStageOp, "SokCheckpointStage", "handles", "prefix", "id", "counted_by", "proceed",
           "code", "message", "save_id", "others");

class CommitCheckpointOp : public tf::OpKernel {
 public:
  explicit CommitCheckpointOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("ranks", &ranks_));
    OP_REQUIRES_OK(construction, construction->GetAttr("with_others", &with_others_));
    OP_REQUIRES_OK(construction, construction->GetAttr("apart", &apart_));
  }

  void Compute(tf::OpKernelContext* context) override {
    tf::tstring prefix;
    int64_t id = 0;
    OP_REQUIRES_OK(context, ScalarInput(context, 0, "prefix", &prefix));
    OP_REQUIRES_OK(context, ScalarInput(context, 1, "id", &id));
    SaveRequest request;
    request.prefix = prefix;
    request.id = HexDigits(id);
    request.apart = apart_;
    OP_REQUIRES_OK(context, ToTf(CommitCheckpoint(request, ranks_, with_others_)));
  }

 private:
  int ranks_;
  bool with_others_;
  bool apart_;
};
REGISTER_KERNEL_BUILDER(Name("SokCommitCheckpoint").Device(tf::DEVICE_CPU), CommitCheckpointOp);

class EndCheckpointOp : public TablesOp {
 public:
  using TablesOp::TablesOp;

  void Compute(tf::OpKernelContext* context) override {
    bool succeeded = false;
    OP_REQUIRES_OK(context, ScalarInput(context, num_tables_, "succeeded", &succeeded));
    const TfEngineContext call(context);
    for (int i = 0; i < num_tables_; ++i) {
      TableRef ref;
      // A table that does not exist has no save under way.
      if (!LookupTable(context, i, &ref).ok()) continue;
      OP_REQUIRES_OK(context, ToTf(EndSave(*call, ref, succeeded)));
    }
  }
};
SOK_KERNEL(EndCheckpointOp, "SokEndCheckpoint", "handles", "succeeded");

class TrackChangesOp : public TablesOp {
 public:
  using TablesOp::TablesOp;

  void Compute(tf::OpKernelContext* context) override {
    const TfEngineContext call(context);
    for (int i = 0; i < num_tables_; ++i) {
      TableRef ref;
      OP_REQUIRES_OK(context, LookupTable(context, i, &ref));
      const auto held = ref.table->Hold(*call);
      OP_REQUIRES_OK(context, ToTf(held.status()));
      OP_REQUIRES_OK(context, ToTf(held.value()->TrackChanges()));
    }
  }
};
SOK_KERNEL(TrackChangesOp, "SokTrackChanges", "handles");

// The kernel that merges chains of checkpoints into one full checkpoint.

class CompactCheckpointOp : public tf::OpKernel {
 public:
  explicit CompactCheckpointOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("tables", &parts_.tables));
    OP_REQUIRES_OK(construction, construction->GetAttr("for_serving", &parts_.for_serving));
  }

  void Compute(tf::OpKernelContext* context) override {
    tf::tstring checkpoint;
    tf::tstring prefix;
    tf::tstring id;
    OP_REQUIRES_OK(context, ScalarInput(context, 0, "checkpoint", &checkpoint));
    OP_REQUIRES_OK(context, ScalarInput(context, 1, "prefix", &prefix));
    OP_REQUIRES_OK(context, ScalarInput(context, 2, "id", &id));
    SaveRequest request;
    request.prefix = prefix;
    request.id = id;
    const StatusOr<Engine*> engine = FindEngine("cpu");
    OP_REQUIRES_OK(context, ToTf(engine.status()));
    const TfEngineContext call(context);
    const Status status = CompactCheckpoint(*call, engine.value(), checkpoint, request, parts_);
    OP_REQUIRES_OK(context, OutputScalar<tf::tstring>(context, 0, Printable(status.message())));
  }

 private:
  CompactionParts parts_;
};
REGISTER_KERNEL_BUILDER(Name("SokCompactCheckpoint").Device(tf::DEVICE_CPU), CompactCheckpointOp);

}  // namespace
}  // namespace sok
