// Kernels that restore tables from checkpoints.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/checkpoint/table_replacement.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/scalars.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/logging.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// Whether the environment variable SOK_MAP_TABLES asks for tables whose weights are mapped.
tf::Status MapsTables(bool* maps) {
  const char* const text = std::getenv("SOK_MAP_TABLES");
  const std::string_view value = text == nullptr ? "" : text;
  *maps = value == "1";
  if (*maps || value.empty() || value == "0") return tf::Status();
  return tf::errors::InvalidArgument("SOK_MAP_TABLES is '", text, "'; it must be 0 or 1");
}

// The output `checked` of SokCheckCheckpoint: the new table for each.
struct CheckedTables {
  std::vector<TableReplacement> tables;
};

class CheckCheckpointOp : public TablesOp {
 public:
  explicit CheckCheckpointOp(tf::OpKernelConstruction* construction) : TablesOp(construction) {
    OP_REQUIRES_OK(construction, ReadNames(construction, /*required=*/true, &names_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_told", &num_told_));
    OP_REQUIRES(construction, num_told_ == 0 || num_told_ == num_tables_,
                tf::errors::InvalidArgument("`trained_by` has ", num_told_, " optimizers for ", num_tables_,
                                            " tables"));
  }

  void Compute(tf::OpKernelContext* context) override {
    auto checked = std::make_shared<CheckedTables>();
    OP_REQUIRES_OK(context, ReportStage(context, Run(context, &checked->tables)));
    OP_REQUIRES_OK(context, OutputScalar<tf::Variant>(context, 2, StateVariant<CheckedTables>{checked}));
  }

 private:
  tf::Status Run(tf::OpKernelContext* context, std::vector<TableReplacement>* checked) {
    tf::tstring prefix;
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_, "prefix", &prefix));
    const TfEngineContext call(context);
    RestoreParts parts;
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 1, "optimizers", &parts.optimizer));
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 2, "counts", &parts.counts));
    TF_RETURN_IF_ERROR(MapsTables(&parts.map_weights));
    OpenedCheckpoints opened(PosixFiles());
    for (int i = 0; i < num_tables_; ++i) {
      TableRef ref;
      TF_RETURN_IF_ERROR(LookupTable(context, i, &ref, TableUse::kRestore));
      if (num_told_ > 0) {
        tf::tstring trained_by;
        TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 3 + i, "trained_by", &trained_by));
        parts.trained_by = trained_by;
      }
      auto one = TableReplacement::Load(*call, ref.table.get(), opened, prefix, names_[i], parts);
      TF_RETURN_IF_ERROR(ToTf(one.status()));
      checked->push_back(std::move(one.value()));
    }
    return tf::Status();
  }

  int num_told_ = 0;                // optimizers
  std::vector<std::string> names_;  // of the tables in the checkpoint
};
SOK_KERNEL(CheckCheckpointOp, "SokCheckCheckpoint", "handles", "prefix", "optimizers", "counts", "trained_by",
           "code", "message", "checked");

class FollowCheckpointOp : public TablesOp {
 public:
  explicit FollowCheckpointOp(tf::OpKernelConstruction* construction) : TablesOp(construction) {
    OP_REQUIRES_OK(construction, ReadNames(construction, /*required=*/true, &names_));
  }

  void Compute(tf::OpKernelContext* context) override { OP_REQUIRES_OK(context, Run(context)); }

 private:
  struct Followed {
    TableRef ref;
    std::unique_ptr<TableRestore> changes;
  };

  tf::Status Run(tf::OpKernelContext* context) {
    tf::tstring prefix;
    tf::tstring since;
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_, "prefix", &prefix));
    TF_RETURN_IF_ERROR(ScalarInput(context, num_tables_ + 1, "since", &since));
    RestoreParts parts;
    parts.optimizer = false;
    OpenedCheckpoints opened(PosixFiles());
    std::vector<Followed> tables(static_cast<size_t>(num_tables_));
    for (int i = 0; i < num_tables_; ++i) {
      Followed& one = tables[static_cast<size_t>(i)];
      TF_RETURN_IF_ERROR(LookupTable(context, i, &one.ref));
      auto changes =
          TableRestore::Open(opened, prefix, names_[static_cast<size_t>(i)], one.ref.table->options(), parts);
      TF_RETURN_IF_ERROR(ToTf(changes.status()));
      one.changes = std::move(changes.value());
      TF_RETURN_IF_ERROR(ToTf(one.changes->StartAfter(since)));
      TF_RETURN_IF_ERROR(ToTf(one.changes->Check()));
    }
    // The order in which lookups of groups lock their tables: see TableLocks.
    std::sort(tables.begin(), tables.end(), [](const Followed& one, const Followed& other) {
      return std::less<>()(one.ref.table.get(), other.ref.table.get());
    });
    return Apply(context, tables);
  }

  static tf::Status Apply(tf::OpKernelContext* context, std::vector<Followed>& tables) {
    const TfEngineContext call(context);
    std::vector<std::unique_ptr<HeldTable>> held;
    for (const Followed& one : tables) {
      auto table = one.ref.table->Hold(*call);
      TF_RETURN_IF_ERROR(ToTf(table.status()));
      if (table.value()->state().optimizer.has_value()) {
        return tf::errors::FailedPrecondition("Embedding variable '", one.ref.table->options().name,
                                              "' is trained in this session, and cannot follow a checkpoint");
      }
      held.push_back(std::move(table.value()));
    }
    for (size_t i = 0; i < tables.size(); ++i) {
      const Status applied = tables[i].changes->Apply((*call).executor, held[i].get());
      if (applied.ok()) continue;
      // What was verified could not be read again: the tables have a part of the changes.
      for (const Followed& one : tables) one.ref.resource->Lose(applied.message());
      return ToTf(applied);
    }
    return tf::Status();
  }

  std::vector<std::string> names_;  // of the tables in the checkpoint
};
SOK_KERNEL(FollowCheckpointOp, "SokFollowCheckpoint", "handles", "prefix", "since");

class LoadCheckpointOp : public TablesOp {
 public:
  using TablesOp::TablesOp;

  void Compute(tf::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, ReportStage(context, Run(context)));
  }

 private:
  tf::Status Run(tf::OpKernelContext* context) {
    const auto* checked = StateIn<CheckedTables>(context->input(num_tables_));
    if (checked == nullptr || checked->tables.size() != static_cast<size_t>(num_tables_)) {
      return tf::errors::InvalidArgument(
          "`checked` is not the output of SokCheckCheckpoint for these tables");
    }
    std::vector<TableRef> refs(checked->tables.size());
    for (int i = 0; i < num_tables_; ++i) {
      TF_RETURN_IF_ERROR(LookupTable(context, i, &refs[static_cast<size_t>(i)], TableUse::kRestore));
    }
    for (size_t i = 0; i < refs.size(); ++i) {
      const std::shared_ptr<EngineTable>& table = checked->tables[i].table;
      refs[i].resource->Replace(table);
      refs[i].table = nullptr;  // frees the old rows
      if (table->options().rank != 0) continue;
      for (const std::string& notice : checked->tables[i].notices) LOG(WARNING) << notice;
    }
    return tf::Status();
  }
};
SOK_KERNEL(LoadCheckpointOp, "SokLoadCheckpoint", "handles", "checked", "code", "message");

}  // namespace
}  // namespace sok
