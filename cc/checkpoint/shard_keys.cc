#include "cc/checkpoint/shard_keys.h"

#include <algorithm>

#include "cc/checkpoint/column_pieces.h"

namespace sok {

StatusOr<std::unique_ptr<ArrayReader>> ShardSource::Open(const std::string& array) const {
  const PlacedArray& placed = *Find(array);
  SOK_ASSIGN_OR_RETURN(auto file, checkpoint.Data(placed.shard));
  return ArrayReader::Open(std::move(file), checkpoint.DataFile(placed.shard), placed);
}

KeyFilter::KeyFilter(const TableOptions& options, const ShardSource& source)
    : options_(options),
      source_(source),
      owners_(options.placement.owners(options.ranks)),
      saved_owners_(source.manifest.table.options.placement.owners(source.manifest.table.options.ranks)),
      least_(options.key_dtype == "int64"   ? INT64_MIN
             : options.key_dtype == "int32" ? INT32_MIN
                                            : 0),
      most_(options.key_dtype == "int64"   ? INT64_MAX
            : options.key_dtype == "int32" ? INT32_MAX
                                           : int64_t{UINT32_MAX}) {}

Status KeyFilter::Check(int64_t key, const std::string& path) const {
  if (source_.manifest.is_foreign()) return CheckForeign(key, path);
  const int shard = saved_owners_.OwnerOf(key);
  if (shard != source_.shard) {
    return DataLoss("'", path, "' has the key ", key, ", which belongs to shard ", shard);
  }
  const TableOptions& saved = source_.manifest.table.options;
  if (saved.use_hashtable) return OkStatus();
  const int64_t saved_keys = saved.placement.StaticKeys(saved.ranks, saved.capacity);
  if (static_cast<uint64_t>(key) >= static_cast<uint64_t>(saved_keys)) {
    return DataLoss("'", path, "' has the key ", key, " of a table whose keys end at ", saved_keys);
  }
  return CheckStatic(key, path);
}

Status KeyFilter::CheckForeign(int64_t key, const std::string& path) const {
  if (key < least_ || key > most_) {
    return InvalidArgument("Embedding variable '", options_.name, "' has keys of ", options_.key_dtype,
                           ", but '", path, "' has the key ", key);
  }
  return options_.use_hashtable ? OkStatus() : CheckStatic(key, path);
}

Status KeyFilter::CheckStatic(int64_t key, const std::string& path) const {
  const int64_t own_keys = options_.placement.StaticKeys(options_.ranks, options_.capacity);
  if (key >= own_keys) {
    return ResourceExhausted("Embedding variable '", options_.name, "' has no row for the key ", key, " of '",
                             path, "': its keys end at ", own_keys);
  }
  return OkStatus();
}

Status KeyChecker::Check(const KeyFilter& filter, const std::vector<int64_t>& keys, const std::string& path) {
  for (const int64_t key : keys) SOK_RETURN_IF_ERROR(filter.Check(key, path));
  InlineExecutor executor;
  firsts_.resize(keys.size());
  SOK_RETURN_IF_ERROR(deduplicator_.Run(executor, keys, &distinct_, Span<int32_t>(firsts_)));
  if (distinct_.size() == keys.size()) return OkStatus();
  size_t twice = 0;
  while (firsts_[twice] == static_cast<int32_t>(twice)) ++twice;
  return DataLoss("'", path, "' has the key ", keys[twice], " twice");
}

Status PieceOfKeys::Read(ArrayReader* reader, const KeyFilter& filter, int64_t count, KeyChecker* checker) {
  all.resize(static_cast<size_t>(count));
  SOK_RETURN_IF_ERROR(reader->Read(all.data(), count * static_cast<int64_t>(sizeof(int64_t))));
  if (checker != nullptr) SOK_RETURN_IF_ERROR(checker->Check(filter, all, reader->path()));
  wanted.resize(all.size());
  own.clear();
  for (size_t i = 0; i < all.size(); ++i) {
    wanted[i] = filter.Wants(all[i]);
    if (wanted[i]) own.push_back(all[i]);
  }
  return OkStatus();
}

namespace {

// ForEachKeyPiece, without checks if `checker` is null.
Status VisitKeys(const ShardSource& source, const std::string& array, const KeyFilter& filter,
                 KeyChecker* checker, FunctionRef<Status(Span<const int64_t> keys)> visit) {
  SOK_ASSIGN_OR_RETURN(auto reader, source.Open(array));
  const int64_t rows = source.Find(array)->array.type.shape[0];
  std::vector<int64_t> keys;
  for (int64_t first = 0; first < rows; first += kPieceItems) {
    keys.resize(static_cast<size_t>(std::min(kPieceItems, rows - first)));
    SOK_RETURN_IF_ERROR(reader->Read(keys.data(), static_cast<int64_t>(keys.size() * sizeof(int64_t))));
    if (checker != nullptr) SOK_RETURN_IF_ERROR(checker->Check(filter, keys, reader->path()));
    keys.erase(std::remove_if(keys.begin(), keys.end(), [&](int64_t key) { return !filter.Wants(key); }),
               keys.end());
    SOK_RETURN_IF_ERROR(visit(keys));
  }
  return OkStatus();
}

}  // namespace

Status ForEachKeyPiece(const ShardSource& source, const std::string& array, const KeyFilter& filter,
                       FunctionRef<Status(Span<const int64_t> keys)> visit) {
  KeyChecker checker;
  return VisitKeys(source, array, filter, &checker, visit);
}

namespace {

// Calls visit(array, keys) on the selected keys of all shards, with rows and waiting.
Status ForEachKey(Span<const ShardSource> sources, const TableOptions& options,
                  FunctionRef<void(const PlacedArray& array, Span<const int64_t> keys)> visit) {
  for (const ShardSource& source : sources) {
    const KeyFilter filter(options, source);
    for (const char* name : {"keys", "waiting_keys"}) {
      if (source.Find(name) == nullptr) continue;
      SOK_RETURN_IF_ERROR(VisitKeys(source, name, filter, nullptr, [&](Span<const int64_t> keys) {
        visit(*source.Find(name), keys);
        return OkStatus();
      }));
    }
  }
  return OkStatus();
}

Status HasTwice(Span<const ShardSource> sources, const TableOptions& options, int64_t key) {
  std::vector<std::string> found;
  SOK_RETURN_IF_ERROR(ForEachKey(sources, options, [&](const PlacedArray& array, Span<const int64_t> keys) {
    found.insert(found.end(), static_cast<size_t>(std::count(keys.begin(), keys.end(), key)), array.name);
  }));
  if (found.size() < 2) return Internal("the key ", key, " was not found again");
  return DataLoss("'", sources[0].checkpoint.index_path(), "' has the key ", key, " twice: in '", found[0],
                  "' and in '", found[1], "'");
}

}  // namespace

Status CheckDistinct(Span<const ShardSource> sources, const TableOptions& options) {
  constexpr int64_t kAtOnce = int64_t{1} << 22;
  int64_t total = 0;
  for (const ShardSource& source : sources) {
    for (const char* name : {"keys", "waiting_keys"}) {
      const PlacedArray* const array = source.Find(name);
      if (array != nullptr) total += array->array.type.shape[0];
    }
  }
  const auto passes = static_cast<uint64_t>(total / options.ranks / kAtOnce + 1);
  std::vector<int64_t> chosen;
  for (uint64_t pass = 0; pass < passes; ++pass) {
    chosen.clear();
    SOK_RETURN_IF_ERROR(ForEachKey(sources, options, [&](const PlacedArray&, Span<const int64_t> keys) {
      for (const int64_t key : keys) {
        const uint64_t mixed = static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15u >> 32;
        if (mixed * passes >> 32 == pass) chosen.push_back(key);
      }
    }));
    std::sort(chosen.begin(), chosen.end());
    const auto twice = std::adjacent_find(chosen.begin(), chosen.end());
    if (twice != chosen.end()) return HasTwice(sources, options, *twice);
  }
  return OkStatus();
}

}  // namespace sok
