#include "cc/checkpoint/table_replacement.h"

#include <utility>

#include "cc/table/table_errors.h"

namespace sok {
namespace {

Status TrackChangesLike(const EngineContext& context, EngineTable* current, EngineTable* table) {
  {
    SOK_ASSIGN_OR_RETURN(const auto held, current->Hold(context));
    if (!held->state().tracks_changes) return OkStatus();
  }
  SOK_ASSIGN_OR_RETURN(const auto held, table->Hold(context));
  return held->TrackChanges();
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
  SOK_ASSIGN_OR_RETURN(const auto restore,
                       TableRestore::Open(opened, prefix, name, current->options(), parts));
  auto loaded = restore->Load(context, &current->engine());
  if (!loaded.ok()) return NoRoomBeside(*current, loaded.status());
  SOK_RETURN_IF_ERROR(TrackChangesLike(context, current, loaded.value().get()));
  return TableReplacement{std::move(loaded.value()), restore->notices()};
}

}  // namespace sok
