#include "cc/checkpoint/table_replacement.h"

#include <algorithm>
#include <utility>

namespace sok {

StatusOr<TableReplacement> TableReplacement::Check(const EngineContext& context, EngineTable* current,
                                                   OpenedCheckpoints& opened, const std::string& prefix,
                                                   const std::string& name, const RestoreParts& parts,
                                                   int64_t* spare) {
  auto restore = TableRestore::Open(opened, prefix, name, current->options(), parts);
  SOK_RETURN_IF_ERROR(restore.status());
  TableReplacement replacement(std::move(restore.value()));
  if (current->Describe().rows > 0) {
    const int64_t bytes = replacement.restore_->bytes();
    if (bytes > std::min(kSmallTable, *spare)) {
      SOK_RETURN_IF_ERROR(replacement.restore_->Check());
      return StatusOr<TableReplacement>(std::move(replacement));
    }
    *spare -= bytes;
  }
  auto loaded = replacement.restore_->Load(context, &current->engine());
  SOK_RETURN_IF_ERROR(loaded.status());
  replacement.loaded_ = std::move(loaded.value());
  return StatusOr<TableReplacement>(std::move(replacement));
}

Status TableReplacement::Load(const EngineContext& context, EngineTable* current,
                              FunctionRef<void(std::shared_ptr<EngineTable>)> replace) const {
  Engine& engine = current->engine();
  bool tracks_changes = false;
  {
    const auto held = current->Hold(context);
    SOK_RETURN_IF_ERROR(held.status());
    tracks_changes = held.value()->state().tracks_changes;
  }
  std::shared_ptr<EngineTable> loaded = loaded_;
  if (loaded == nullptr) {
    TableOptions empty = restore_->options();
    empty.use_hashtable = true;  // without hashing the table would allocate all its rows
    auto made = engine.MakeTable(context, std::move(empty));
    SOK_RETURN_IF_ERROR(made.status());
    replace(std::move(made.value()));
    auto read = restore_->Load(context, &engine);
    if (!read.ok()) {
      auto initial = engine.MakeTable(context, restore_->options());
      if (initial.ok()) replace(std::move(initial.value()));
      return read.status();
    }
    loaded = std::move(read.value());
  }
  if (tracks_changes) {
    const auto held = loaded->Hold(context);
    SOK_RETURN_IF_ERROR(held.status());
    SOK_RETURN_IF_ERROR(held.value()->TrackChanges());
  }
  replace(std::move(loaded));
  return OkStatus();
}

}  // namespace sok
