#ifndef SOK_SOK_OPS_HOROVOD_DEVICE_WORDS_H_
#define SOK_SOK_OPS_HOROVOD_DEVICE_WORDS_H_

namespace sok {

// Whether Horovod's alltoall takes words in the memory of GPUs, and ends when they are there: if Horovod was
// built with GPU operations. Otherwise exchanges go through memory of the host.
bool HorovodTakesDeviceMemory();

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_DEVICE_WORDS_H_
