#ifndef SOK_CC_SHARDED_EXCHANGE_MODE_H_
#define SOK_CC_SHARDED_EXCHANGE_MODE_H_

namespace sok {

// What a table's owners send to the ranks that look up ids in it.
enum class ExchangeMode {
  kRows,  // the row of each distinct id; the asking rank pools
  kSums,  // the sum of each bag's rows that they own; the asking rank adds the owners' sums up
};

}  // namespace sok

#endif  // SOK_CC_SHARDED_EXCHANGE_MODE_H_
