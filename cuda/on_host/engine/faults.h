// Processor faults that are caused by wrong uses of device memory.
#ifndef SOK_CUDA_ON_HOST_ENGINE_FAULTS_H_
#define SOK_CUDA_ON_HOST_ENGINE_FAULTS_H_

namespace sok::on_host {

// From now on a fault at an address of device memory, or below the stack of a CUDA thread, becomes a report.
// Other faults go to the previous handler.
void ReportFaults();

// Gives the calling thread a stack on which a stack overflow can be reported.
void PrepareForFaults();

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_FAULTS_H_
