#ifndef SOK_CC_DISK_CLOCK_H_
#define SOK_CC_DISK_CLOCK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sok {

// The most uses of a frame that are counted, by frequency.
constexpr int kMostFrameUses = 15;

// Chooses at most `n` of the frames [0, frames.size()) whose rows leave memory: those without uses, in order
// from the one after *hand on. When there are no more of them, the uses of all are counted down by as many
// as the least used has. So rows leave that were used least recently or, by frequency, least often, both
// nearly.
//
// frames.MayLeave(i) says whether frame i has a row that the running call does not need, and is not chosen
// yet; frames.uses(i) and frames.set_uses(i, uses) are its uses; frames.Choose(i) is called once for each.
template <typename Frames>
std::vector<int64_t> ChooseVictims(Frames&& frames, int64_t n, int64_t* hand) {
  std::vector<int64_t> victims;
  int fewest = 0;
  do {
    fewest = 0;  // uses of a row that may leave; 0: there is none
    for (int64_t i = 0; i < frames.size(); ++i) {
      if (static_cast<int64_t>(victims.size()) == n) return victims;
      *hand = *hand + 1 < frames.size() ? *hand + 1 : 0;
      if (!frames.MayLeave(*hand)) continue;
      const int uses = frames.uses(*hand);
      if (uses > 0) {
        fewest = fewest == 0 ? uses : std::min(fewest, uses);
        continue;
      }
      frames.Choose(*hand);
      victims.push_back(*hand);
    }
    for (int64_t i = 0; fewest > 0 && i < frames.size(); ++i) {
      frames.set_uses(i, std::max(frames.uses(i) - fewest, 0));
    }
  } while (fewest > 0);
  return victims;
}

}  // namespace sok

#endif  // SOK_CC_DISK_CLOCK_H_
