#include "sok_ops/horovod/stall_round.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace sok {
namespace {

constexpr int64_t kWord = sizeof(int64_t);
constexpr size_t kMaxListed = 8;  // names or ranks in one list of an error message

int64_t WordsFor(int64_t bytes) { return (bytes + kWord - 1) / kWord; }

Status Malformed() { return Internal("a rank sent words that are not a report of a stall watch"); }

// "'a', 'b' and 3 more"
template <typename Items, typename Write>
std::string List(const Items& items, Write write) {
  std::string text;
  size_t listed = 0;
  for (const auto& item : items) {
    if (listed == kMaxListed) return StrCat(text, " and ", items.size() - listed, " more");
    if (listed++ > 0) text += ", ";
    text += write(item);
  }
  return text;
}

}  // namespace

std::vector<int64_t> Encode(const Waiting& waiting) {
  std::vector<int64_t> words = {waiting.period_ms, waiting.stuck, static_cast<int64_t>(waiting.names.size())};
  for (const std::string& name : waiting.names) {
    words.push_back(name.size());
    const size_t begin = words.size();
    words.resize(begin + WordsFor(name.size()));
    std::memcpy(words.data() + begin, name.data(), name.size());
  }
  return words;
}

StatusOr<Waiting> Decode(Span<const int64_t> words) {
  if (words.size() < 3 || words[2] < 0) return Malformed();
  Waiting waiting;
  waiting.period_ms = words[0];
  waiting.stuck = words[1] != 0;
  int64_t next = 3;
  for (int64_t i = 0; i < words[2]; ++i) {
    if (next >= words.size()) return Malformed();
    const int64_t bytes = words[next++];
    if (bytes < 0 || bytes > (words.size() - next) * kWord) return Malformed();
    waiting.names.emplace_back(reinterpret_cast<const char*>(words.data() + next), bytes);
    next += WordsFor(bytes);
  }
  return waiting;
}

Status CheckForDeadlock(const std::vector<Waiting>& ranks) {
  std::set<std::string> awaited_by_all;
  std::map<std::set<std::string>, std::vector<size_t>> ranks_by_names;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].stuck) return OkStatus();
    const std::set<std::string> names(ranks[rank].names.begin(), ranks[rank].names.end());
    if (rank == 0) awaited_by_all = names;
    for (auto name = awaited_by_all.begin(); name != awaited_by_all.end();) {
      name = names.count(*name) == 0 ? awaited_by_all.erase(name) : std::next(name);
    }
    ranks_by_names[names].push_back(rank);
  }
  if (!awaited_by_all.empty()) return OkStatus();

  std::vector<std::pair<std::vector<size_t>, std::set<std::string>>> sides;
  for (const auto& [names, members] : ranks_by_names) sides.emplace_back(members, names);
  std::sort(sides.begin(), sides.end());
  std::string who;
  for (const auto& [members, names] : sides) {
    if (!who.empty()) who += "; ";
    who += members.size() == 1 ? "rank " : "ranks ";
    who += List(members, [](size_t rank) { return std::to_string(rank); });
    who += members.size() == 1 ? " waits for " : " wait for ";
    who += List(names, [](const std::string& name) { return "'" + name + "'"; });
  }
  return FailedPrecondition("The ranks wait for each other: ", who,
                            ". All ranks must run the same lookups and the same steps.");
}

}  // namespace sok
