// Kernels that save tables in files beside TensorFlow's checkpoint.
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/checkpoint/table_checkpoint.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/stage.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

int64_t DrawId() {
  std::random_device device;
  return static_cast<int64_t>((uint64_t{device()} << 32) | device());
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

class CheckpointStageOp : public tf::OpKernel {
 public:
  explicit CheckpointStageOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_tables", &num_tables_));
    OP_REQUIRES_OK(construction, construction->GetAttr("stage", &stage_));
    OP_REQUIRES_OK(construction, construction->GetAttr("incremental", &incremental_));
    OP_REQUIRES_OK(construction, construction->GetAttr("names", &names_));
    OP_REQUIRES(
        construction, names_.empty() || names_.size() == static_cast<size_t>(num_tables_),
        tf::errors::InvalidArgument("`names` has ", names_.size(), " names for ", num_tables_, " tables"));
  }

  void Compute(tf::OpKernelContext* context) override {
    int64_t id = DrawId();
    std::vector<std::string> references(num_tables_);
    OP_REQUIRES_OK(context, ReportStage(context, Run(context, &id, &references)));
    tf::Tensor* save_id = nullptr;
    tf::Tensor* found = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(2, tf::TensorShape({}), &save_id));
    OP_REQUIRES_OK(context, context->allocate_output(3, tf::TensorShape({num_tables_}), &found));
    save_id->scalar<int64_t>()() = id;
    for (int i = 0; i < num_tables_; ++i) found->vec<tf::tstring>()(i) = references[i];
  }

 private:
  tf::Status Run(tf::OpKernelContext* context, int64_t* id, std::vector<std::string>* references) {
    tf::tstring prefix;
    bool proceed = false;
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_, "prefix", &prefix));
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 2, "proceed", &proceed));
    if (stage_ != "begin") TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 1, "id", id));
    const std::string path = prefix;
    if (path.find("://") != std::string::npos) {
      return tf::errors::Unimplemented("A checkpoint with embedding variables needs a local directory, not '",
                                       path, "'");
    }
    std::vector<TableRef> tables(num_tables_);
    for (int i = 0; i < num_tables_; ++i) TF_RETURN_IF_ERROR(LookupTable(context, i, &tables[i]));
    SaveRequest request{path, HexDigits(*id), incremental_};
    const TfEngineContext call(context);
    tf::Status first_error;
    for (int i = 0; i < num_tables_; ++i) {
      if (!names_.empty()) request.name = names_[i];
      const Status status = RunOne(*call, tables[i], request, proceed, &(*references)[i]);
      if (first_error.ok()) first_error = ToTf(status);
    }
    return first_error;
  }

  Status RunOne(const EngineContext& call, const TableRef& ref, const SaveRequest& request, bool proceed,
                std::string* reference) {
    const TableOptions& options = ref.table->options();
    if (stage_ == "begin") {
      if (!proceed) return OkStatus();
      SOK_RETURN_IF_ERROR(EndSave(call, ref, false));
      return BeginTableCheckpoint(call, ref.table.get(), request);
    }
    if (stage_ == "write") {
      ref.resource->ExchangeSave(request);
      return proceed ? WriteTableShard(call, ref.table.get(), request) : OkStatus();
    }
    if (!proceed) {
      if (stage_ == "publish") AbandonTableCheckpoint(options, request);
      return OkStatus();
    }
    // Rank 0 publishes in 'publish'; the other ranks read the result in 'read'.
    if ((stage_ == "publish") != (options.rank == 0)) return OkStatus();
    StatusOr<std::string> published = PublishTableCheckpoint(options, request);
    SOK_RETURN_IF_ERROR(published.status());
    *reference = std::move(published.value());
    return OkStatus();
  }

  int num_tables_;
  std::string stage_;
  bool incremental_;
  std::vector<std::string> names_;
};
REGISTER_KERNEL_BUILDER(Name("SokCheckpointStage").Device(tf::DEVICE_CPU), CheckpointStageOp);
SOK_GPU_KERNEL(CheckpointStageOp, "SokCheckpointStage", "handles", "prefix", "id", "proceed", "code",
               "message", "save_id", "references");

class EndCheckpointOp : public tf::OpKernel {
 public:
  explicit EndCheckpointOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_tables", &num_tables_));
  }

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

 private:
  int num_tables_;
};
REGISTER_KERNEL_BUILDER(Name("SokEndCheckpoint").Device(tf::DEVICE_CPU), EndCheckpointOp);
SOK_GPU_KERNEL(EndCheckpointOp, "SokEndCheckpoint", "handles", "succeeded");

class TrackChangesOp : public tf::OpKernel {
 public:
  explicit TrackChangesOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_tables", &num_tables_));
  }

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

 private:
  int num_tables_;
};
REGISTER_KERNEL_BUILDER(Name("SokTrackChanges").Device(tf::DEVICE_CPU), TrackChangesOp);
SOK_GPU_KERNEL(TrackChangesOp, "SokTrackChanges", "handles");

}  // namespace
}  // namespace sok
