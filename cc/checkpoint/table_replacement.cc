#include "cc/checkpoint/table_replacement.h"

#include <utility>

#include "cc/table/table_errors.h"

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

// The error of a restore that may have found no memory beside the rows before it.
Status NoRoomBeside(const EngineTable& current, const Status& status) {
  const TableDescription before = current.Describe();
  if (status.code() != StatusCode::kResourceExhausted || SaysTableIsFull(current.options(), status) ||
      before.rows == 0)
    return status;
  return ResourceExhausted(status.message(), " (until a restore has succeeded, the variable's ", before.rows,
                           " rows from before stay in ", before.bytes,
                           " bytes of memory: run its initializer first to free them)");
}

}  // namespace

StatusOr<TableReplacement> TableReplacement::Load(const EngineContext& context, EngineTable* current,
                                                  OpenedCheckpoints& opened, const std::string& prefix,
                                                  const std::string& name, const RestoreParts& parts) {
  const auto restore = TableRestore::Open(opened, prefix, name, current->options(), parts);
  SOK_RETURN_IF_ERROR(restore.status());
  auto loaded = restore.value()->Load(context, &current->engine());
  if (!loaded.ok()) return NoRoomBeside(*current, loaded.status());
  SOK_RETURN_IF_ERROR(TrackChangesLike(context, current, loaded.value().get()));
  return TableReplacement{std::move(loaded.value()), restore.value()->notices()};
}

}  // namespace sok
