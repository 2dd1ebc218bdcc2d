#ifndef SOK_CC_ENGINE_SUMMED_TABLES_H_
#define SOK_CC_ENGINE_SUMMED_TABLES_H_

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"

namespace sok {

// What Engine::Route requires of the kSums tables of a group: exactly one lookup each, pooled, without
// weights, that keeps its bags. InvalidArgument names the first table that has another number or kind of
// lookups. modes[t] belongs to batch.tables[t].
Status CheckSummedTables(const GroupBatch& batch, Span<const ExchangeMode> modes);

}  // namespace sok

#endif  // SOK_CC_ENGINE_SUMMED_TABLES_H_
