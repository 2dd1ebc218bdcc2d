// Kernels of the original SOK's raw files, which all ranks write and read together, in stages.
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/checkpoint/raw_files.h"
#include "cc/table/table_errors.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/scalars.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// A stage that all ranks run. It outputs its error instead of raising it.
class StageOp : public tf::OpKernel {
 public:
  explicit StageOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("stage", &stage_));
  }

  void Compute(tf::OpKernelContext* context) final {
    OP_REQUIRES_OK(context, ReportStage(context, Run(context)));
  }

 protected:
  virtual Status RunStage(const EngineContext& call, tf::OpKernelContext* context, const TableRef& ref,
                          const std::string& directory, bool proceed) = 0;

  const std::string& stage() const { return stage_; }

 private:
  tf::Status Run(tf::OpKernelContext* context) {
    TableRef ref;
    TF_RETURN_IF_ERROR(LookupTable(context, 0, &ref));
    tf::tstring directory;
    bool proceed = false;
    TF_RETURN_IF_ERROR(ScalarInput(context, 1, "directory", &directory));
    TF_RETURN_IF_ERROR(ScalarInput(context, context->num_inputs() - 1, "proceed", &proceed));
    if (directory.empty()) {
      return tf::errors::InvalidArgument("The directory of embedding files must not be empty");
    }
    const TfEngineContext call(context);
    const Status status = WithinMemory([&] { return RunStage(*call, context, ref, directory, proceed); });
    return ToTf(NamedError(ref.table->options(), status));
  }

  std::string stage_;
};

class DumpStageOp : public StageOp {
 public:
  using StageOp::StageOp;

 protected:
  Status RunStage(const EngineContext& call, tf::OpKernelContext* context, const TableRef& ref,
                  const std::string& directory, bool proceed) override {
    const TableOptions& options = ref.table->options();
    const tf::Tensor& counts = context->input(2);
    if (counts.NumElements() != options.ranks) {
      return InvalidArgument("Embedding variable '", options.name, "': row counts of ", counts.NumElements(),
                             " ranks, not ", options.ranks);
    }
    const Span<const int64_t> row_counts(counts.flat<int64_t>().data(), counts.NumElements());
    const RawFilesWriter writer(directory, options.name,
                                std::accumulate(row_counts.begin(), row_counts.end(), int64_t{0}),
                                options.dim, options.key_dtype);
    if (stage() == "write") {
      return proceed ? WriteRawRows(call, ref.table.get(), row_counts, writer) : OkStatus();
    }
    if (options.rank != 0) return OkStatus();
    if (stage() == "begin") return writer.Begin();
    if (proceed) return writer.Publish();
    writer.Abandon();
    return OkStatus();
  }
};
SOK_KERNEL(DumpStageOp, "SokDumpStage", "handle", "directory", "row_counts", "proceed", "code", "message");

class RestoreStageOp : public StageOp {
 public:
  explicit RestoreStageOp(tf::OpKernelConstruction* construction) : StageOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("file_name", &file_name_));
  }

 protected:
  Status RunStage(const EngineContext& call, tf::OpKernelContext* /*context*/, const TableRef& ref,
                  const std::string& directory, bool proceed) override {
    if (!proceed) return OkStatus();
    const int64_t dim = ref.table->options().dim;
    const std::string& name = file_name_.empty() ? ref.name() : file_name_;
    StatusOr<RawFilesReader> reader =
        RawFilesReader::Open(directory, name, dim, ref.table->options().key_dtype);
    if (reader.status().code() == StatusCode::kNotFound) return Missing(reader.status(), directory, name);
    SOK_RETURN_IF_ERROR(reader.status());
    std::vector<int64_t> keys;
    SOK_RETURN_IF_ERROR(reader.value().ReadKeys(call.executor, &keys));
    if (stage() == "check") return OkStatus();
    // A new table is filled and replaces the old one only on success: a bad file leaves the variable
    // unchanged.
    SOK_ASSIGN_OR_RETURN(auto loaded,
                         LoadRawRows(call, &ref.table->engine(), ref.table->options(), keys, reader.value()));
    ref.resource->Replace(std::move(loaded));
    return OkStatus();
  }

 private:
  static Status Missing(const Status& status, const std::string& directory, const std::string& name) {
    return NotFound(status.message(), ". The rows are read from '", RawKeysPath(directory, name), "' and '",
                    RawValuesPath(directory, name),
                    "'. To read files with another name, such as the original's "
                    "'EmbeddingVariable_keys.file', use restore_from_file(..., name='EmbeddingVariable')");
  }

  std::string file_name_;
};
SOK_KERNEL(RestoreStageOp, "SokRestoreStage", "handle", "directory", "proceed", "code", "message");

}  // namespace
}  // namespace sok
