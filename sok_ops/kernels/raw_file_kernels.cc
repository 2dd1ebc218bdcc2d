// Kernels of the original SOK's raw files, which all ranks write and read together, stage by stage.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/checkpoint/raw_files.h"
#include "sok_ops/kernels/cpu_tables.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/stage.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// Rows that are read at once.
constexpr int64_t kRowsAtOnce = 1 << 16;

// A stage of something that all ranks do: its error is its output.
class StageOp : public tf::OpKernel {
 public:
  explicit StageOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("stage", &stage_));
  }

  void Compute(tf::OpKernelContext* context) final {
    OP_REQUIRES_OK(context, ReportStage(context, Run(context)));
  }

 protected:
  virtual Status RunStage(Executor& executor, tf::OpKernelContext* context, const TableRef& ref,
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
    TfExecutor executor(context);
    return ToTf(RunStage(executor, context, ref, directory, proceed));
  }

  std::string stage_;
};

class DumpStageOp : public StageOp {
 public:
  using StageOp::StageOp;

 protected:
  Status RunStage(Executor& executor, tf::OpKernelContext* context, const TableRef& ref,
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
    if (stage() == "write") return proceed ? Write(executor, ref, row_counts, writer) : OkStatus();
    if (options.rank != 0) return OkStatus();
    if (stage() == "begin") return writer.Begin();
    if (proceed) return writer.Publish();
    writer.Abandon();
    return OkStatus();
  }

 private:
  static Status Write(Executor& executor, const TableRef& ref, Span<const int64_t> row_counts,
                      const RawFilesWriter& writer) {
    Table& table = *CpuTableBehind(*ref.table);
    const int rank = table.options().rank;
    const int64_t first = std::accumulate(row_counts.begin(), row_counts.begin() + rank, int64_t{0});
    const std::lock_guard<std::mutex> lock(table.mutex());
    if (table.size() < row_counts[rank]) {
      return FailedPrecondition("Embedding variable '", ref.name(), "' has ", table.size(), " rows and had ",
                                row_counts[rank], " before: it was made anew while it was written");
    }
    std::vector<int64_t> rows = table.Rows();
    rows.resize(row_counts[rank]);
    table.BringUpToDate(executor, rows);
    std::vector<int64_t> keys;
    for (const int64_t row : rows) keys.push_back(table.key(row));
    const Status status = writer.Write(first, keys, [&](int64_t i) { return table.weights(rows[i]); });
    if (status.code() != StatusCode::kNotFound || rank == 0) return status;
    return NotFound(status.message(), " (all ranks need to see the directory in which rank 0 made the file)");
  }
};
REGISTER_KERNEL_BUILDER(Name("SokDumpStage").Device(tf::DEVICE_CPU), DumpStageOp);

class RestoreStageOp : public StageOp {
 public:
  explicit RestoreStageOp(tf::OpKernelConstruction* construction) : StageOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("file_name", &file_name_));
  }

 protected:
  Status RunStage(Executor& executor, tf::OpKernelContext* /*context*/, const TableRef& ref,
                  const std::string& directory, bool proceed) override {
    if (!proceed) return OkStatus();
    const int64_t dim = ref.table->options().dim;
    const std::string& name = file_name_.empty() ? ref.name() : file_name_;
    StatusOr<RawFilesReader> reader =
        RawFilesReader::Open(directory, name, dim, ref.table->options().key_dtype);
    if (reader.status().code() == StatusCode::kNotFound) return Missing(reader.status(), directory, name);
    SOK_RETURN_IF_ERROR(reader.status());
    std::vector<int64_t> keys;
    SOK_RETURN_IF_ERROR(reader.value().ReadKeys(&keys));
    if (stage() == "check") return OkStatus();
    // Filled beside the other and put in its place when all went well: a bad file leaves the variable as it
    // was.
    StatusOr<std::unique_ptr<Table>> made = Table::Create(executor, ref.table->options());
    SOK_RETURN_IF_ERROR(made.status());
    std::shared_ptr<Table> fresh = std::move(made.value());
    std::vector<float> values;
    for (int64_t first = 0; first < reader.value().num_rows(); first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, reader.value().num_rows() - first);
      values.resize(count * dim);
      SOK_RETURN_IF_ERROR(reader.value().ReadValues(Span<float>(values)));
      SOK_RETURN_IF_ERROR(
          fresh->Assign(executor, Span<const int64_t>(keys).subspan(first, count), values.data()));
    }
    ref.resource->Replace(BehindSeam(std::move(fresh)));
    return OkStatus();
  }

 private:
  static Status Missing(const Status& status, const std::string& directory, const std::string& name) {
    return NotFound(status.message(), ". The rows are read from '", RawKeysPath(directory, name), "' and '",
                    RawValuesPath(directory, name),
                    "'. Files that are called otherwise, as the original's "
                    "'EmbeddingVariable_keys.file', are found with restore_from_file(..., "
                    "name='EmbeddingVariable')");
  }

  std::string file_name_;
};
REGISTER_KERNEL_BUILDER(Name("SokRestoreStage").Device(tf::DEVICE_CPU), RestoreStageOp);

}  // namespace
}  // namespace sok
