// CompactCheckpoint of table_checkpoint.h.
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
    SOK_ASSIGN_OR_RETURN(auto tables, from_.Tables());
    if (tables.empty()) return InvalidArgument("'", from_.index_path(), "' has no table of this library");
    tables_ = what_.tables.empty() ? std::move(tables) : what_.tables;
    SOK_ASSIGN_OR_RETURN(auto facts, from_.ReadFacts());
    parts_ = facts.parts;
    for (int part = 0; part < parts_; ++part) SOK_RETURN_IF_ERROR(WritePart(part));
    bool with_others = false;
    if (what_.tables.empty()) SOK_RETURN_IF_ERROR(CopyOthers(&with_others));
    return CommitCheckpoint(request_, parts_, with_others);
  }

 private:
  Status WritePart(int part) {
    SOK_ASSIGN_OR_RETURN(auto writer,
                         PartWriter::Create(*request_.files, PartPrefix(request_.prefix, request_.id, part)));
    for (const std::string& name : tables_) SOK_RETURN_IF_ERROR(WriteShardOf(name, part, writer.get()));
    if (part == 0) {
      SOK_RETURN_IF_ERROR(
          WriteFacts(CheckpointFacts{request_.id, parts_, {}}, request_.counted_by, writer.get()));
    }
    return writer->Finish();
  }

  Status WriteShardOf(const std::string& name, int part, PartWriter* writer) {
    SOK_ASSIGN_OR_RETURN(const auto manifest, from_.ReadTable(name));
    TableOptions options = manifest.table.options;
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
    SOK_ASSIGN_OR_RETURN(auto restore, TableRestore::Open(opened_, from_.prefix(), name, options, parts));
    SOK_ASSIGN_OR_RETURN(const auto table, restore->Load(context_, engine_));
    SOK_ASSIGN_OR_RETURN(const auto held, table->Hold(context_));
    SOK_RETURN_IF_ERROR(held->SettleOptimizer());
    TableOptions described = table->options();
    if (what_.for_serving) described.key_dtype = "int64";
    return WriteTable(context_.executor, held.get(), described, name, {}, /*apart=*/false, writer);
  }

  // Copies all other tensors, if there are any.
  Status CopyOthers(bool* any) {
    const std::vector<std::string> others = OtherEntries(from_, tables_);
    *any = !others.empty();
    if (!*any) return OkStatus();
    SOK_ASSIGN_OR_RETURN(auto writer, PartWriter::Create(*request_.files, PrefixOfOthers(request_)));
    SOK_RETURN_IF_ERROR(CopyEntries(from_, others, writer.get()));
    return writer->Finish();
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
    SOK_ASSIGN_OR_RETURN(auto from, SavedCheckpoint::Open(*request.files, AbsolutePath(prefix)));
    return Compaction(context, engine, *from, request, parts).Run();
  });
  if (!status.ok()) AbandonCheckpoint(request);
  return status;
}

}  // namespace sok
