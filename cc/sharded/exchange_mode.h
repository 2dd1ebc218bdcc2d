#ifndef SOK_CC_SHARDED_EXCHANGE_MODE_H_
#define SOK_CC_SHARDED_EXCHANGE_MODE_H_

namespace sok {

// What a table's owners send to the ranks that look up ids in it.
enum class ExchangeMode {
  kRows,  // the row of each distinct id; the asking rank pools
  kSums,  // for each bag, the sum of the rows that the owner has; the asking rank adds up the owners' sums
};

}  // namespace sok

#endif  // SOK_CC_SHARDED_EXCHANGE_MODE_H_
