// CompactCheckpoint of table_checkpoint.h.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/checkpoint/written_tables.h"

namespace sok {
namespace {

class Compaction {
 public:
  Compaction(const EngineContext& context, Engine* engine, SavedCheckpoint& from, const SaveRequest& request,
             const CompactionParts& what)
      : context_(context),
        engine_(engine),
        from_(from),
        request_(request),
        what_(what),
        opened_(*request.files) {}

  Status Run() {
    auto tables = from_.Tables();
    SOK_RETURN_IF_ERROR(tables.status());
    if (tables.value().empty())
      return InvalidArgument("'", from_.index_path(), "' has no table of this library");
    tables_ = what_.tables.empty() ? std::move(tables.value()) : what_.tables;
    auto facts = from_.ReadFacts();
    SOK_RETURN_IF_ERROR(facts.status());
    parts_ = facts.value().parts;
    for (int part = 0; part < parts_; ++part) SOK_RETURN_IF_ERROR(WritePart(part));
    bool with_others = false;
    if (what_.tables.empty()) SOK_RETURN_IF_ERROR(CopyOthers(&with_others));
    return CommitCheckpoint(request_, parts_, with_others);
  }

 private:
  Status WritePart(int part) {
    auto writer = PartWriter::Create(*request_.files, PartPrefix(request_.prefix, request_.id, part));
    SOK_RETURN_IF_ERROR(writer.status());
    for (const std::string& name : tables_)
      SOK_RETURN_IF_ERROR(WriteShardOf(name, part, writer.value().get()));
    if (part == 0) {
      SOK_RETURN_IF_ERROR(
          WriteFacts(CheckpointFacts{request_.id, parts_, {}}, request_.counted_by, writer.value().get()));
    }
    return writer.value()->Finish();
  }

  Status WriteShardOf(const std::string& name, int part, PartWriter* writer) {
    const auto manifest = from_.ReadTable(name);
    SOK_RETURN_IF_ERROR(manifest.status());
    TableOptions options = manifest.value().table.options;
    options.rank = part;
    RestoreParts parts;
    if (what_.for_serving) {
      parts.optimizer = parts.counts = false;
      if (options.use_hashtable) options.capacity = 0;
      options.on_full = OnFull::kError;
      options.eviction = Eviction();
      if (options.admission.kind == Admission::Kind::kBloom)
        options.admission.kind = Admission::Kind::kCounter;
    }
    auto restore = TableRestore::Open(opened_, from_.prefix(), name, options, parts);
    SOK_RETURN_IF_ERROR(restore.status());
    const auto table = restore.value()->Load(context_, engine_);
    SOK_RETURN_IF_ERROR(table.status());
    const auto held = table.value()->Hold(context_);
    SOK_RETURN_IF_ERROR(held.status());
    SOK_RETURN_IF_ERROR(held.value()->SettleOptimizer());
    TableOptions described = table.value()->options();
    if (what_.for_serving) described.key_dtype = "int64";
    return WriteTable(context_.executor, held.value().get(), described, name, {}, /*apart=*/false, writer);
  }

  // Copies all other tensors, if there are any.
  Status CopyOthers(bool* any) {
    const std::vector<std::string> others = OtherEntries(from_, tables_);
    *any = !others.empty();
    if (!*any) return OkStatus();
    auto writer = PartWriter::Create(*request_.files, PrefixOfOthers(request_));
    SOK_RETURN_IF_ERROR(writer.status());
    SOK_RETURN_IF_ERROR(CopyEntries(from_, others, writer.value().get()));
    return writer.value()->Finish();
  }

  const EngineContext& context_;
  Engine* const engine_;
  SavedCheckpoint& from_;
  const SaveRequest& request_;
  const CompactionParts& what_;
  OpenedCheckpoints opened_;
  std::vector<std::string> tables_;  // in order
  int parts_ = 0;
};

}  // namespace

Status CompactCheckpoint(const EngineContext& context, Engine* engine, const std::string& prefix,
                         const SaveRequest& request, const CompactionParts& parts) {
  if (request.delta) return InvalidArgument("'", prefix, "' can be compacted into a full checkpoint only");
  SOK_RETURN_IF_ERROR(CheckSave(request.prefix, request.id));
  const Status status = WithinMemory([&]() -> Status {
    auto from = SavedCheckpoint::Open(*request.files, AbsolutePath(prefix));
    SOK_RETURN_IF_ERROR(from.status());
    return Compaction(context, engine, *from.value(), request, parts).Run();
  });
  if (!status.ok()) AbandonCheckpoint(request);
  return status;
}

}  // namespace sok
