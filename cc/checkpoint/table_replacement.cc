#include "cc/checkpoint/table_replacement.h"

#include <utility>

namespace sok {
namespace {

Status TrackChangesLike(const EngineContext& context, EngineTable* current, EngineTable* table) {
  {
    const auto held = current->Hold(context);
    SOK_RETURN_IF_ERROR(held.status());
    if (!held.value()->state().tracks_changes) return OkStatus();
  }
  const auto held = table->Hold(context);
  SOK_RETURN_IF_ERROR(held.status());
  return held.value()->TrackChanges();
}

}  // namespace

StatusOr<TableReplacement> TableReplacement::Load(const EngineContext& context, EngineTable* current,
                                                  OpenedCheckpoints& opened, const std::string& prefix,
                                                  const std::string& name, const RestoreParts& parts) {
  const auto restore = TableRestore::Open(opened, prefix, name, current->options(), parts);
  SOK_RETURN_IF_ERROR(restore.status());
  auto loaded = restore.value()->Load(context, &current->engine());
  SOK_RETURN_IF_ERROR(loaded.status());
  SOK_RETURN_IF_ERROR(TrackChangesLike(context, current, loaded.value().get()));
  return TableReplacement{std::move(loaded.value()), restore.value()->notices()};
}

}  // namespace sok
